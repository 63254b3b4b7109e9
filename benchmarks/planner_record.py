"""What was measured of the planner, and what is said of it: in a record, and in the documents.

`python -m benchmarks.planner_record` writes benchmarks/results/planner.md and the block of docs/planner.md from
benchmarks/results/planner.json, and measures nothing.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planner_grid import HELD_OUT, TASKS

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "results" / "planner.json"
RECORD, PAGE = KEPT.with_suffix(".md"), ROOT / "docs" / "planner.md"
BEGIN = "<!-- From here, `python -m benchmarks.planner_record` writes what planner.json has. -->"
END = "<!-- As far as here. -->"
SHOWN = "ppo, Gymnasium's CartPole"
"""The task whose plans are all in the documents."""


@dataclass(frozen=True)
class Case:
    """One plan of a task."""

    task: str
    plan: str
    predicted: float
    """Environment steps a second."""
    measured: float
    chosen: bool
    others: float = 0.0
    """Cores that other processes used meanwhile."""
    of_best: float = 0.0
    """Of the chosen plan: what share of the fastest one's speed it has."""
    rounds: tuple[float, ...] = ()
    """The speed of each round; `measured` is their median."""
    profiled: float = 0.0
    """Of the chosen plan: how many seconds it took to measure what it was chosen by, with nothing compiled before."""
    short: float | None = None
    """What was predicted by the profile that the plan was chosen by. Older records do not have it."""
    cores: int = 2
    """Of the machine. Older records do not have it, and are of machines with two."""

    @property
    def held_out(self) -> bool:
        return self.task in HELD_OUT

    @property
    def error(self) -> float:
        return abs(self.predicted / self.measured - 1)

    @property
    def short_error(self) -> float | None:
        return None if self.short is None else abs(self.short / self.measured - 1)


def read(text: str) -> dict[str, list[Case]]:
    """What was measured, by task. Which tasks are held out is a matter of the grid, whatever a record says of it."""
    known = {field.name for field in fields(Case)}

    def case(found: Mapping[str, Any]) -> Case:
        return Case(**{name: value for name, value in found.items() if name in known})

    return {task: [case(found) for found in cases] for task, cases in json.loads(text).items()}


def kept() -> dict[str, list[Case]]:
    return read(KEPT.read_text()) if KEPT.exists() else {}


def keep(found: Mapping[str, Sequence[Case]]) -> None:
    KEPT.write_text(json.dumps({task: [asdict(case) for case in cases] for task, cases in found.items()}, indent=1))


def in_order(found: Mapping[str, Sequence[Case]]) -> list[Case]:
    """All cases, task after task as the grid has them."""
    return [case for task in TASKS for case in found.get(task.name, ())]


def by_task(found: Sequence[Case]) -> dict[str, list[Case]]:
    return {task: [case for case in found if case.task == task] for task in dict.fromkeys(case.task for case in found)}


def tau(found: Sequence[Case], told_apart: bool = False) -> float:
    """Kendall's: how many more pairs are in the same order than in the other, as a share of all; or of those that are
    `told_apart`, since nobody can foretell which of two plans is ahead that take turns in it."""
    both = [pair for pair in itertools.combinations(found, 2) if not told_apart or _told_apart(*pair)]
    agree = sum(np.sign((a.predicted - b.predicted) * (a.measured - b.measured)) for a, b in both)
    return float(agree / len(both)) if both else 1.0


def _told_apart(one: Case, other: Case) -> bool:
    """Whether one plan was ahead in all rounds but one at most."""
    ahead = sum(a > b for a, b in zip(one.rounds, other.rounds, strict=True))
    return min(ahead, len(one.rounds) - ahead) <= 1


def regret(found: Sequence[Case]) -> float:
    """What share of the best plan's speed the chosen one has."""
    return next(case.of_best for case in found if case.chosen)


def profiled(found: Sequence[Case]) -> float:
    """Seconds of measuring before the first choice."""
    return next(case.profiled for case in found if case.chosen)


def record(found: Sequence[Case]) -> str:
    """Every case, and how each task was ranked."""
    short = _short(found)
    lines = [
        f"{len(found)} cases, {sum(case.held_out for case in found)} of them held out, on {_cores(found)} cores. "
        f"Error of predicted steps/s: {_spread([case.error for case in found])}; of those held out: "
        f"{_spread([case.error for case in found if case.held_out])}. `others` are cores that other processes used, "
        "environments in processes of their own included. The plan that a first `motet train --max-lag 1` would choose "
        "is in bold; `short` is what it chose by.",
        "",
        *([f"Predictions of the first 15 s: {_spread(short)}.", ""] if short else []),
        "| task | plan | predicted | short | measured | error | others |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in found:
        name = f"**{case.plan}**" if case.chosen else case.plan
        held = " (held out)" if case.held_out else ""
        first = "" if case.short is None else f"{case.short:,.0f}"
        numbers = f"{case.predicted:,.0f} | {first} | {case.measured:,.0f} | {case.predicted / case.measured - 1:+.0%}"
        lines.append(f"| {case.task}{held} | {name} | {numbers} | {case.others:.2f} |")
    for task, mine in by_task(found).items():
        order = f"Kendall's tau {tau(mine):.2f} ({tau(mine, told_apart=True):.2f} of the pairs that rounds tell apart)"
        chosen = f"the chosen plan has {regret(mine):.2f} of the best, after {profiled(mine):.1f} s of measuring"
        lines += ["", f"{task}: {order}; {chosen}."]
    return "\n".join(lines) + "\n"


def block(found: Sequence[Case]) -> str:
    """What the documents say of it."""
    tasks = by_task(found)
    points = sorted(tasks.get(SHOWN, ()), key=lambda case: -case.measured)
    lines = [
        textwrap.fill(_said(found), 120),
        "",
        "| task | plans | median error | worst | Kendall's tau | chosen, of the fastest | profiled in |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(_row(task, mine) for task, mine in tasks.items()),
        "",
        f"Each plan of one task, {SHOWN} with 64 copies:",
        "",
        "| plan | predicted steps/s | measured |",
        "| --- | ---: | ---: |",
        *(f"| {_plan(case)} | {case.predicted:,.0f} | {case.measured:,.0f} |" for case in points),
    ]
    return "\n".join(lines)


def _row(task: str, found: Sequence[Case]) -> str:
    errors = [case.error for case in found]
    name = f"{task} (held out)" if found[0].held_out else task
    numbers = f"{len(found)} | {statistics.median(errors):.0%} | {max(errors):.0%} | {tau(found):.2f}"
    return f"| {name} | {numbers} | {regret(found):.2f} | {profiled(found):.1f} s |"


def _plan(case: Case) -> str:
    return f"`{case.plan}`, chosen" if case.chosen else f"`{case.plan}`"


def _said(found: Sequence[Case]) -> str:
    tasks = by_task(found).values()
    held = [case for case in found if case.held_out]
    seconds = [profiled(mine) for mine in tasks]
    words = [
        f"{len(found)} plans of {len(tasks)} tasks, on {_cores(found)} cores. Error of predicted steps/s: "
        f"{_spread([case.error for case in found])}; of the {len(held)} that are held out: "
        f"{_spread([case.error for case in held])}.",
        f"Kendall's tau within a task is at least {min(map(tau, tasks)):.2f}. The plan that a first `motet train "
        f"--max-lag 1` chooses, with nothing compiled before and after {min(seconds):.0f} to {max(seconds):.0f} s of "
        f"measuring, has at least {min(map(regret, tasks)):.2f} of the fastest one's speed.",
    ]
    if short := _short(found):
        words.append(f"Error of what those first seconds alone foretell: {_spread(short)}.")
    return " ".join(words)


def _short(found: Sequence[Case]) -> list[float]:
    return [case.short_error for case in found if case.short_error is not None]


def _cores(found: Sequence[Case]) -> str:
    return " or ".join(map(str, sorted({case.cores for case in found})))


def _spread(errors: Sequence[float]) -> str:
    if not errors:
        return "none"
    median, most = statistics.median(errors), float(np.percentile(errors, 90))
    return f"median {median:.0%}, 90th percentile {most:.0%}, worst {max(errors):.0%}"


def with_block(page: str, text: str) -> str:
    """A page, whose block says this."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/planner.md has no block between the lines\n{BEGIN}\n{END}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def write(found: Mapping[str, Sequence[Case]]) -> None:
    """Into the record and the documents."""
    cases = in_order(found)
    RECORD.write_text(record(cases))
    PAGE.write_text(with_block(PAGE.read_text(), block(cases)))


def main() -> int:
    write(kept())
    print(block(in_order(kept())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
