"""Plans on the command line: what a preset takes is read from its signature, so that a new one needs no line here."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Iterable, Mapping
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import arg

from motet.errors import BadOption, UnknownName
from motet.plan.plan import Plan
from motet.plan.presets import PRESETS


def takes(preset: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a preset."""
    return inspect.signature(PRESETS[preset]).parameters


@functools.cache
def plan_options() -> type:
    """A dataclass with `preset`, `plan`, and every parameter that some preset has."""
    names = dict.fromkeys(name for preset in PRESETS for name in takes(preset))
    known = "\n".join(f"{preset}: {_first_line(function)}" for preset, function in PRESETS.items())
    fields: list[Any] = [
        (
            "preset",
            Annotated[str | None, arg(metavar="NAME", help=f"A plan by name.\n{known}", help_behavior_hint="")],
            None,
        ),
        (
            "plan",
            Annotated[Path | None, arg(metavar="FILE", help="A plan as a JSON file.", help_behavior_hint="")],
            None,
        ),
        *((name, _preset_option(name), None) for name in names),
    ]
    made = make_dataclass(
        "PlanOptions", [(name, kind, field(default=default)) for name, kind, default in fields], frozen=True
    )
    made.__doc__ = (
        "Where each part of the loop runs; without any, the planner measures and chooses (`motet plan` says how), and "
        "a written rule does with --no-profile, with --serial and over several hosts (docs/planner.md)."
    )
    return made


def _preset_option(name: str) -> Any:
    """The type of an option that presets share, with a help that names them and their defaults."""
    users = [preset for preset in PRESETS if name in takes(preset)]
    kinds = [get_type_hints(PRESETS[preset])[name] for preset in users]
    kind = functools.reduce(operator.or_, dict.fromkeys(kinds))
    defaults = ", ".join(f"{preset} ({_default(takes(preset)[name])})" for preset in users)
    about = f"{MEANS[name]} For {defaults}." if name in MEANS else f"An option of {defaults}."
    return Annotated[kind | None, arg(metavar=_metavar(kind), help=about, help_behavior_hint="")]


MEANS = {
    "shards": "Devices over which the whole loop is spread.",
    "actors": "Copies of the part that acts, each with its share of the environments.",
    "threads": "Threads that share each actor's device.",
    "learners": "Devices over which learning is spread.",
    "lag": "How many iterations old the policy that acts is; latest: whatever is newest, which does not repeat.",
    "workers": "Processes that step host environments (of central: copies of the part that acts and learns).",
    "first_ready": "Go on with whichever thread's environments are ready first, instead of in turn.",
    "environments": "Parts that only step environments.",
    "per_replica": "Nodes whose statistics may be taken over one copy's share of the batch.",
    "prefetch": "Batches that are drawn before the learner asks.",
    "replay": "Where the replay lies: a device, host, or opencl:0.",
}
"""What an option does, whichever preset takes it; a new one without a line here only says whose it is."""


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def _default(parameter: inspect.Parameter) -> str:
    return "none" if parameter.default in ((), None) else str(parameter.default)


def _metavar(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "NODE [NODE ...]"
    if get_origin(kind) is Literal:
        return "|".join("INT" if isinstance(value, int) else str(value) for value in get_args(kind))
    kinds = [each for each in get_args(kind) if each is not type(None)]
    words = "|".join(map(_metavar, kinds)).split("|")
    return "|".join(dict.fromkeys(words)) or kind.__name__.upper()


def chosen_plan(options: Any) -> Plan | None:
    """The plan that `plan_options` ask for, or None if they ask for none."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    preset, file = given.pop("preset", None), given.pop("plan", None)
    if preset and file:
        raise BadOption("--preset and --plan both name a plan: give one of them")
    if preset:
        return _preset(preset, given)
    if given:
        users = ", ".join(name for name in PRESETS if set(given) <= set(takes(name)))
        raise BadOption(f"{flags(given)}: for a preset only; name one with --preset ({users or 'none takes all'})")
    return read_plan(file) if file else None


def _preset(name: str, given: Mapping[str, Any]) -> Plan:
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    wrong = [option for option in given if option not in takes(name)]
    if wrong:
        raise BadOption(f"The preset {name!r} has no option {flags(wrong)}; it takes {flags(takes(name)) or 'none'}.")
    return PRESETS[name](**given)


def flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def read_plan(file: Path) -> Plan:
    return Plan.from_json(plan_text(file))


def plan_text(file: Path) -> str:
    try:
        return file.read_text()
    except UnicodeDecodeError:
        raise BadOption(f"{file} is not a text file; a plan is JSON, as `motet plan ... --json` writes it") from None
