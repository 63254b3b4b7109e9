"""Whoever follows a run: what writes its folder, what shows it, trackers, callbacks of users. All are of one kind."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.errors import BadOption, MotetError, described
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from motet.runs.metrics import Row
from motet.runs.names import Names


@dataclass(frozen=True)
class Beginning:
    """What a run is, before its first iteration."""

    graph: Graph
    plan: Plan
    algorithm: Algorithm
    """Bound to its task."""
    seed: int
    total_steps: int
    """Environment steps that the run will take."""
    names: Names
    how: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked for: limits, evaluations, checkpoints."""
    run_dir: Path | None = None
    first_iteration: int = 0
    """Where it goes on: above 0 if it was interrupted there."""
    history: Sequence[Row] = ()
    """The rows of the iterations before. Whoever has written others drops them."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """What evaluations of those iterations gave, as `Result.evaluations` has them."""
    tracked: Mapping[str, Any] | None = None
    """What the checkpoint, from which it goes on, says of the tracker that was told."""
    notes: Sequence[str] = ()
    """What whoever looks on should know: what will not be as it would have been without an interruption."""

    @property
    def links(self) -> list[tuple[str, str, str]]:
        """Link, from, to: what fragments will send each other again and again."""
        programs = project(self.graph, self.plan)
        return [(each.link, each.source, each.target) for each in traffic(self.graph, self.plan, programs)]

    @property
    def waits(self) -> bool:
        """Whether a part of the run may wait for another, or for environments."""
        return len(self.plan.fragments) > 1 or any(node.host is not None for node in self.graph.nodes())

    @property
    def first_step(self) -> int:
        """Environment steps that were taken before."""
        return self.graph.steps_after(self.first_iteration) if self.first_iteration else 0


class Callback:
    """Follows a run. Override what you need; the rest does nothing.

    Methods are called one after another, from whichever thread has something to tell. One that raises ends the run with
    its error.
    """

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong in here without ending the run. A result repeats it."""
        return ()

    def planning(self, text: str) -> None:
        """Before the run begins: what the planner does and chooses, where it does."""

    def begin(self, run: Beginning) -> None:
        """Before anything is computed."""

    def status(self, text: str) -> None:
        """What a part of the run does now: `compiling the training loop`, `learner: running targets`."""

    def row(self, row: Row) -> None:
        """A row of metrics, as `Result.history` has them."""

    def usage(self, usage: Mapping[str, float]) -> None:
        """What the parts of the run did of late: see `docs/metrics.md`. It follows some rows, a second apart."""

    def evaluation(self, evaluation: Any) -> None:
        """What an evaluation during training gave."""

    def checkpoint(self, iteration: int) -> None:
        """A checkpoint has been written: what the run was after so many iterations."""

    def end(self, outcome: Any) -> None:
        """The run is over: its `Result`, or the error that ended it. It comes to everyone who has begun."""


class Callbacks(Callback):
    """Several callbacks as one. What one of them raises says which."""

    def __init__(self, callbacks: Iterable[Callback]):
        self.all = tuple(callbacks)
        for each in self.all:
            if not isinstance(each, Callback):
                hint = f": make one of it with {each.__name__}()" if isinstance(each, type) else ""
                raise BadOption(f"callbacks must be objects of subclasses of motet.Callback, got {each!r}{hint}.")
        self.begun: list[Callback] = []
        self.lock = threading.RLock()  # rows, evaluations and what parts do are told by several threads

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for each in self.all for warning in each.warnings)

    def begin(self, run: Beginning) -> None:
        for each in self.all:
            self.begun.append(each)
            _tell(each, "begin", run)

    def status(self, text: str) -> None:
        with self.lock:
            for each in self.all:
                _tell(each, "status", text)

    def row(self, row: Row) -> None:
        with self.lock:
            for each in self.all:
                _tell(each, "row", row)

    def usage(self, usage: Mapping[str, float]) -> None:
        with self.lock:
            for each in self.all:
                _tell(each, "usage", usage)

    def evaluation(self, evaluation: Any) -> None:
        with self.lock:
            for each in self.all:
                _tell(each, "evaluation", evaluation)

    def checkpoint(self, iteration: int) -> None:
        with self.lock:
            for each in self.all:
                _tell(each, "checkpoint", iteration)

    def end(self, outcome: Any) -> None:
        """The last to begin ends first. All are told, whatever some of them raise; then the first error is raised,
        unless the run ended by one: that one must not be hidden, and gets a note."""
        errors: list[BaseException] = []
        while self.begun:
            try:
                _tell(self.begun.pop(), "end", outcome)
            except BaseException as error:
                errors.append(error)
        if errors and isinstance(outcome, BaseException):
            for error in errors:
                outcome.add_note(f"Then, when callbacks were told of it: {described(error)}")
        elif errors:
            raise errors[0]


def _tell(callback: Callback, method: str, *what: Any) -> None:
    try:
        getattr(callback, method)(*what)
    except BaseException as error:
        if not isinstance(error, MotetError):  # which say enough by themselves
            error.add_note(f"(raised by the callback {type(callback).__qualname__}, in {method})")
        raise
