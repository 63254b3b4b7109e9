"""`motet plan` without a plan: the best candidates, and why the first one wins."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.cli.arguments import busy, write

if TYPE_CHECKING:
    from motet.engine.estimate import Estimate, Workload
    from motet.plan.machine import Machine
    from motet.planning import Choice

WIDTH = 100


def show_choice(algorithm: Any, task: Any, show: Any) -> int:
    """Choose a plan and say how it compares."""
    from motet import planning
    from motet.engine.profile import PATIENT

    with busy("choosing a plan") as status:
        choice = planning.choose(
            algorithm,
            task.make(),
            machine=read_machine(show.machine),
            hosts=show.hosts,
            objective=show.objective,
            lag=show.max_lag,
            measure=show.profile,
            again=show.again,
            budget=PATIENT,
            announce=told(status),
        )
    text = choice.plan.to_json() if show.json else table_of(choice) + (explained(choice) if show.explain else "")
    write(text, show.output)
    if show.save is not None:
        show.save.write_text(choice.plan.to_json() + "\n", encoding="utf-8")
    return 0


def told(status: Any) -> Callable[[str], None]:
    """On a terminal, what is being done is said where it says that something is."""
    return status.update if status is not None else lambda text: None


def read_machine(name: str | None) -> Machine | None:
    """A machine of the catalogue, or of a file; None: this one."""
    from motet.errors import BadMachine
    from motet.plan import catalogue
    from motet.plan.machine import Machine

    if name is None:
        return None
    if name.endswith((".yaml", ".yml", ".json")) or Path(name).is_file():
        try:
            return Machine.from_text(Path(name).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise BadMachine([f"{name} is not text in UTF-8"]) from None
    return catalogue.find(name)


def table_of(choice: Choice) -> str:
    """The best candidates, and a sentence on the first."""
    from motet.flow.describe import table
    from motet.plan.objective import SHORT

    asked = SHORT[choice.objective.name]
    rows = [
        (
            choice.spelled(each.plan),
            f"{each.steps_per_second:,.0f}",
            each.bottleneck,
            each.lag,
            _bytes(each.memory.bytes),
            f"{each.watts:,.0f}",
            each.word,
            *([f"{choice.objective.value(each):,.4g}"] if asked else []),
        )
        for each in choice.estimates
    ]
    header = ("plan", "steps/s", "bottleneck", "lag", "memory", "watts", "speed", *asked)
    machine, count = choice.book.machine, choice.considered
    lines = [
        f"{choice.graph.algorithm} on {choice.graph.environment}, {choice.graph.num_envs} environments, on "
        f"{machine.name}: the best of {count} plans for {choice.objective}.",
        "",
        *table(header, rows, "<><>>>>" + ">" * len(asked)),
        "(watts are modelled)",
        *([choice.left_out] if choice.left_out else []),
        "",
        *textwrap.wrap(why(choice), WIDTH),
    ]
    return "\n".join(lines)


def why(choice: Choice) -> str:
    """Why the first one wins, and what it gave up."""
    best, *others = choice.estimates
    said = [f"{choice.spelled(best.plan)} wins: {_held_up(best)}."]
    if others:
        value, next_value = (choice.objective.score(each) for each in (best, others[0]))
        ahead = value / next_value - 1 if next_value else 0.0
        ahead = -ahead if value < 0 else ahead  # of seconds, fewer are better
        other = choice.spelled(others[0].plan)
        if ahead >= 0:
            said.append(f"It is {ahead:.0%} ahead of {other}, of which {_held_up(others[0])}.")
        else:
            said.append(f"{other} would be {-ahead:.1%} better, which is too little for its {_more(best, others[0])}.")
    said += [choice.forgone] if choice.forgone else []
    if best.modelled:
        said.append(f"Modelled, not measured: {', '.join(best.modelled)}.")
    return " ".join(said)


def _more(best: Estimate, other: Estimate) -> str:
    """What a plan has more of than a simpler one."""
    return "lag" if other.lag != best.lag else "additional parts"


def _held_up(each: Estimate) -> str:
    return f"an iteration takes {_seconds(each.iteration_seconds)}, held up by {each.bottleneck}"


def explained(choice: Choice) -> str:
    """What each part of the chosen plan does, and everything that led to it."""
    from motet.flow.describe import table

    best = choice.best
    rows = [(name, *_row(part, best.iteration_seconds)) for name, part in best.parts.items()]
    lines = ["", "", *table(("part", "busy", "with", "waits for"), rows, "<><<")]
    links = [(name, f"{_bytes(rate)}/s") for name, rate in best.links.items()]
    lines += ["", *table(("link", "carries"), links, "<>")] if links else []
    used = ", ".join(f"{name} {share:.0%}" for name, share in best.used.items() if share >= 0.005)
    lines += ["", f"in use: {used}", f"most memory: {_bytes(best.memory.bytes)} of {_bytes(best.memory.limit)} on "
              f"{best.memory.where}"]  # fmt: skip
    about = choice.book.profile.about
    source = "from the profile that was kept" if choice.from_cache else f"measured in {about.get('seconds', '0')} s"
    lines += [f"profile: {source}; choosing took {choice.seconds:.1f} s"]
    lines += [f"not measured: {each}" for each in about.get("left out", "").split("; ") if each]
    refused: dict[str, int] = {}
    for each in choice.refused:
        refused[f"{each.plan.name}: {each.reasons[0]}"] = refused.get(f"{each.plan.name}: {each.reasons[0]}", 0) + 1
    lines += ["", f"{len(choice.refused)} plans do not fit, among them:"] if refused else []
    firsts = {text.partition(":")[0]: text for text in reversed(refused)}
    lines += [line for text in firsts.values() for line in textwrap.wrap(f"- {text}", WIDTH, subsequent_indent="  ")]
    return "\n".join(lines)


def _row(part: Workload, iteration: float) -> tuple[str, str, str]:
    def shares(found: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {each / iteration:.0%}" for name, each in found.items() if each > 0.005 * iteration)

    return f"{part.seconds / iteration:.0%}", shares(part.busy), shares(part.waited) or "nobody"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.3g} ms"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
