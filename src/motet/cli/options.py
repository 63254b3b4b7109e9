"""What can be said on the command line: an algorithm's own fields, a run's options, and what the presets take.

Options are dataclass fields, read by tyro; the docstring under a field is its help. What a preset takes is read
from its signature, so that a new preset needs no line here.
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from motet.envs.wrapping import WRAPPERS
from motet.errors import BadOption, UnknownName
from motet.plan.plan import Plan
from motet.plan.presets import PRESETS


@dataclass(frozen=True, kw_only=True)
class Task:
    env: Annotated[str, Positional, arg(metavar="ENV")]
    """The environment: `motet envs` lists them all. module:Name and file.py:Name are your own."""
    env_kwargs: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """Options with which to make it, as '{"gravity": 9.8}'."""

    time_limit: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Cut episodes off after so many of its steps."""
    action_repeat: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Let each action last so many steps, and sum their rewards."""
    frame_stack: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Show the last so many observations as one."""

    def make(self, strict: bool = False) -> Any:
        from motet import envs

        wrappers = {name: getattr(self, name) for name in WRAPPERS}
        return envs.make(self.env, check_bounds=strict, **wrappers, **self.options())

    def options(self) -> dict[str, Any]:
        try:
            options = json.loads(self.env_kwargs or "{}")
        except (ValueError, RecursionError) as error:
            raise BadOption(f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.8}}': {error}") from None
        if not isinstance(options, dict) or {"check_bounds", *WRAPPERS} & set(options):
            raise BadOption(f"--env-kwargs must be a JSON object such as '{{\"gravity\": 9.8}}', got {self.env_kwargs}")
        return options


@dataclass(frozen=True, kw_only=True)
class Length:
    total_timesteps: int = 500_000
    """Environment steps in all, as 500_000 or 5e5; rounded down to whole iterations."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(Length):
    """How long to train, and where to put what comes of it."""

    seed: int = 0
    """Where all random numbers come from."""
    devices: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Make the CPU appear as so many devices."""
    run_dir: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """The run's folder; by default a new one below runs/."""
    serial: Annotated[bool, FlagCreatePairsOff] = False
    """Run all fragments in one thread, for debuggers."""
    timeout: float = 600.0
    """Seconds that one part may wait for another before the run is stopped."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers of host environments are started anew."""
    evaluate_episodes: int = 64
    """Episodes to play without exploration when training is over; 0: none."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Make it an error if a host environment's observation leaves the bounds that its space declares."""


@dataclass(frozen=True, kw_only=True)
class GraphOptions(Length):
    """How to show the graph."""

    format: Literal["text", "dot", "svg", "json"] = "text"
    """A table for terminals, Graphviz DOT, a picture, or everything for other programs."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write there instead of to the screen."""


@dataclass(frozen=True, kw_only=True)
class ShowPlanOptions(Length):
    """How to show the plan."""

    json: Annotated[bool, FlagCreatePairsOff] = False
    """The plan as a file that --plan reads."""
    output: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write there instead of to the screen."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    run_dir: Annotated[Path, Positional, arg(metavar="RUN_DIR")]
    """The folder that `motet train` wrote."""
    episodes: int = 64
    """How many episodes to play."""
    seed: int = 0
    """Where they start from."""
    workers: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    """Processes for host environments, by default one for each core; 0: a thread of this one."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers of host environments are started anew."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Make it an error if a host environment's observation leaves the bounds that its space declares."""
    trust: Annotated[bool, FlagCreatePairsOff] = False
    """Import the modules that the run names, although somebody else wrote it: that runs their code."""


@dataclass(frozen=True, kw_only=True)
class CheckEnvOptions:
    steps: int = 1000
    """Random steps that each of four environments takes."""
    seed: int = 0
    """Where their random numbers come from."""
    strict: Annotated[bool, FlagCreatePairsOff] = False
    """Count it as a fault if an observation leaves the bounds that its space declares."""


@dataclass(frozen=True, kw_only=True)
class CheckAlgorithmOptions:
    iterations: int = 4
    """Training iterations in each run."""
    seed: int = 0
    """Where their random numbers come from."""


def parse(command: str, args: Sequence[str], about: str, **parts: type) -> Any:
    """Read `args` into an object with one attribute for each of `parts`, which are dataclasses."""
    options = make_dataclass("Options", list(parts.items()))
    with _rules():
        return tyro.cli(options, prog=f"motet {command}", description=about, args=args, config=(OmitArgPrefixes,))


def _rules() -> Any:
    """Read whole numbers as people write them, 500_000 or 5e5, and options that take somebody's code by its name."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def whole_numbers(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
        return _one_word("INT", whole, int) if info.type is int else None

    @registry.primitive_rule
    def code(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
        kinds = get_args(info.type)
        if not any(get_origin(each) is Callable for each in kinds):
            return None
        return _one_word("FLOAT|NAME", number_or_name) if float in kinds else _one_word("NAME", name_or_none)

    return registry


def _one_word(metavar: str, read: Callable[[str], Any], kind: type = object) -> Any:
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: read(args[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        if ":" in text:
            return text
        raise ValueError(f"expected a number or a name such as my_nets.py:schedule, got {text!r}") from None


def name_or_none(text: str) -> str | None:
    return None if text == "None" else text


def whole(text: str) -> int:
    try:
        number = float(text.replace("_", ""))
        # `int` reads long numbers exactly; a float has 53 bits.
        return int(text) if "e" not in text.lower() and number.is_integer() else int(_integral(number))
    except (ValueError, OverflowError):
        raise ValueError(f"expected a whole number such as 500_000 or 5e5, got {text!r}") from None


def _integral(number: float) -> float:
    if not number.is_integer():
        raise ValueError
    return number


def takes(preset: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a preset."""
    return inspect.signature(PRESETS[preset]).parameters


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
        "Where each part of the loop runs; without any, all in one program, which asks host environments in as many "
        "worker processes as there are cores (none for one environment alone, light ones and EnvPool's)."
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
        raise BadOption(f"{_flags(given)}: for a preset only; name one with --preset ({users or 'none takes all'})")
    return read_plan(file) if file else None


def _preset(name: str, given: Mapping[str, Any]) -> Plan:
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    wrong = [option for option in given if option not in takes(name)]
    if wrong:
        raise BadOption(f"The preset {name!r} has no option {_flags(wrong)}; it takes {_flags(takes(name)) or 'none'}.")
    return PRESETS[name](**given)


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def read_plan(file: Path) -> Plan:
    try:
        return Plan.from_json(file.read_text())
    except UnicodeDecodeError:
        raise BadOption(f"{file} is not a text file; a plan is JSON, as `motet plan ... --json` writes it") from None
    except RecursionError:
        raise BadOption(f"{file} is damaged: it is nested too deeply; `motet plan ... --json` writes plans") from None
