"""Leads a run over hosts: starts its generations, puts together what hosts tell, and takes cuts to go on from.

It computes nothing. Everything that it decides follows from what it is told and from iteration numbers; the clock says
only when to look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from motet.engine.cut import RunCut
from motet.engine.hosts.cuts import Cuts
from motet.engine.hosts.generation import Generation
from motet.engine.hosts.onlooker import Nobody, Onlooker
from motet.engine.hosts.post import Keys
from motet.engine.hosts.reach import Launcher, Lost
from motet.engine.hosts.task import HostedRun
from motet.engine.report import Collector
from motet.engine.run import LinkUse, Outcome, Reporter
from motet.errors import MotetError
from motet.plan.hosts import members, spanning
from motet.plan.plan import Plan
from motet.plan.project import project


@dataclass(frozen=True)
class Patience:
    """How long a run waits for its hosts, and how much it forgives."""

    heartbeat: float = 30.0
    """Seconds that a host may be silent."""
    start: float = 300.0
    """Seconds that it may take to trace the loop."""
    recoveries: int = 5
    """How often in a row hosts may be lost before another cut is taken."""


@dataclass(frozen=True)
class Recovery:
    """A failure that was survived."""

    cause: str
    iteration: int
    """After how many iterations the run went on."""
    seconds: float
    """From the loss until all hosts were at work again, or another one was lost."""


class TooManyLosses(MotetError, RuntimeError):
    """Hosts were lost again and again; `recoveries` are what was survived before."""

    def __init__(self, message: str, recoveries: Sequence[Recovery] = ()):
        super().__init__(message)
        self.recoveries = tuple(recoveries)


@dataclass
class Driver:
    """One run over hosts."""

    task: HostedRun
    plan: Plan
    launcher: Launcher
    reporter: Reporter
    """Rows of metrics go there."""
    cuts: Cuts
    patience: Patience = field(default_factory=Patience)
    start: RunCut | None = None
    """Where the run is taken up again."""
    exact: bool = True
    """Whether it is so under the same plan."""
    final: bool = False
    """Whether there is to be a cut at the end."""
    on_recovery: Callable[[Recovery], None] = lambda recovery: None
    on_usage: Callable[[Mapping[str, float]], None] = lambda usage: None
    wants_cut: Callable[[int], bool] = lambda iteration: False
    """Whether somebody else wants a cut, after so many iterations."""
    onlooker: Onlooker = field(default_factory=Nobody)
    """Who looks at the learner state, and may end the run."""

    def __post_init__(self) -> None:
        self.keys, self.packed = Keys.new(), self.task.pack()
        self.generation = 0
        self.recoveries: list[Recovery] = []
        self._lost: tuple[str, float] | None = None
        """Why a host was lost last, and when, while that is not survived."""
        self.usage: dict[int, Mapping[str, float]] = {}
        """What each host has told of its parts last."""
        self.came_up: float | None = None
        """Seconds that the processes of a generation took to come up, at most; None: none has."""
        self.stopping = self.ending = False
        """Whether somebody wants to stop the run, and whether all have agreed where it ends."""
        self.told = self.begun = self.start.iteration if self.start else 0
        """Metrics of so many iterations have been told."""
        self.collector = self._collector()

    def stop(self) -> bool:
        """End the run as soon as possible, with a cut; False: it has not begun. May be called by a signal handler."""
        self.stopping = self.told > self.begun
        return self.stopping

    def run(self, until: int) -> Outcome:
        """Run to the end of iteration `until` - 1, or to where it is stopped. Whatever happens, no process is left."""
        self.reporter.until = until
        in_a_row, taken = 0, self.cuts.taken
        while True:
            self.generation += 1
            generation = Generation(self, self.generation)
            try:
                with self.launcher.launch(self.generation) as hosts:
                    generation.begin(hosts)
                    self._survived()
                    return self._merged(generation.follow())
            except Lost as lost:
                self._survived()
                self._lost = cause, _ = generation.cause(lost), time.monotonic()
                in_a_row = 1 if self.cuts.taken > taken else in_a_row + 1
                taken = self.cuts.taken
                self.cuts.forget()
                self.collector = self._collector()
                if in_a_row > self.patience.recoveries:
                    raise self._give_up(cause, in_a_row) from None
                self.reporter.watcher.status(f"hosts: starting again from {self._where()}, since {cause}")

    def cut(self) -> RunCut | None:
        """What all go on from."""
        return self.cuts.last or self.start

    def reach(self) -> int | None:
        """After how many iterations the learner must wait for now; None: it need not, as when all know the end."""
        return None if self.ending else self.onlooker.reach(self.told)

    def rows(self, first: int, rows: np.ndarray) -> None:
        """Tell what is new: what is computed once more after a loss has been told before."""
        new = rows[max(0, self.told - first) :]
        if len(new):
            self.told = first + len(rows)
            self.reporter.rows(self.told - len(new), new)
            self.cuts.told()

    def _collector(self) -> Collector:
        graph, columns = self.reporter.graph, self.reporter.columns
        known, programs = {report.var for report in graph.reports}, project(graph, self.plan)
        joined = {var for name in spanning(self.plan) for var in programs[name].reports}
        parts = {
            var: members(self.plan, name)
            for name, program in programs.items()
            for var in program.reports
            if var in known
        }
        return Collector(graph, columns, parts, self.rows, joined)

    def _where(self) -> str:
        cut = self.cut()
        return f"iteration {cut.iteration:,}" if cut else "the beginning"

    def _survived(self) -> None:
        """Note the loss before, if there was one: all hosts are at work again, or another was lost meanwhile."""
        if self._lost is None:
            return
        (cause, since), self._lost, cut = self._lost, None, self.cut()
        self.recoveries.append(Recovery(cause, cut.iteration if cut else 0, time.monotonic() - since))
        self.on_recovery(self.recoveries[-1])

    def _give_up(self, cause: str, times: int) -> TooManyLosses:
        before = "; ".join(dict.fromkeys(each.cause for each in self.recoveries[-times:]))
        return TooManyLosses(
            f"Hosts were lost {times} times in a row without a new cut between, the last time because {cause}"
            + (f" (before: {before})" if before else "")
            + ". If the run has a folder with a checkpoint, `motet resume` goes on from there.",
            self.recoveries,
        )

    def _merged(self, ended: Mapping[int, tuple[Outcome, RunCut]]) -> Outcome:
        """What came of the run, from what came of it on each host."""
        outcomes = [outcome for outcome, _ in ended.values()]
        held = [share for _, cut in ended.values() for share in cut.shares.values()]
        return Outcome(
            outcomes[0].iterations,
            {share.fragment: [share.variables] for share in held},
            merged_links([outcome.links for outcome in outcomes]),
            tuple(account for outcome in outcomes for account in outcome.accounts),
            max(outcome.compile_seconds for outcome in outcomes),
            tuple(lane for outcome in outcomes for lane in outcome.timeline),
            tuple(left for outcome in outcomes for left in outcome.left),
        )


def merged_links(found: Sequence[Sequence[LinkUse]]) -> tuple[LinkUse, ...]:
    """What went over each link, from what each host has seen of it."""
    merged: dict[tuple[str, str, str], LinkUse] = {}
    for use in (use for uses in found for use in uses):
        name = (use.link, use.source, use.target)
        old = merged.get(name, LinkUse(*name, 0, 0, {}))
        lags = {age: old.lags.get(age, 0) + use.lags.get(age, 0) for age in sorted({*old.lags, *use.lags})}
        sums = old.messages + use.messages, old.bytes + use.bytes, lags, old.crossing + use.crossing
        merged[name] = LinkUse(*name, *sums)
    return tuple(merged.values())
