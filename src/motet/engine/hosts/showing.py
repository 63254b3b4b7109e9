"""Where the learner on a host shows its state to whoever leads the run, and waits for leave to go on.

Who looks at the state may be slow, and what is found may end the run. So the learner goes no further than it may; the
others come to their ends without it, as far as messages let them. It is held between two iterations, where nothing that
is computed can notice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter
from motet.flow.values import on_host


class Showing:
    """A visitor of the workers of one host."""

    def __init__(self, reporter: Reporter, on_shown: Callable[[int, tuple[Any, ...]], None]):
        """`on_shown` is given a copy of the learner state, and after how many iterations it was so."""
        self.reporter, self.on_shown = reporter, on_shown
        self.owner, self.learner = reporter.plan.learner(reporter.graph), reporter.graph.roles.learner
        self.every: int | None = None
        """Iterations from one time that it is shown to the next; None: only when somebody asks."""
        self.reach: int | None = None
        """After so many iterations the learner waits for leave; None: it may go on."""
        self._asked = False
        self._changed = threading.Condition()

    def ask(self) -> None:
        """Show the state as soon as possible."""
        self._asked = True

    def allow(self, reach: int | None) -> None:
        """Let the learner go on, to the end of so many iterations."""
        with self._changed:
            self.reach = reach
            self._changed.notify_all()

    def within(self, iteration: int, ahead: int) -> int:
        """How many of the iterations that may be under way after `iteration` ones it has leave for."""
        return ahead if self.reach is None else min(ahead, max(0, self.reach - iteration))

    def limit(self, iteration: int) -> int | None:
        ahead = [] if self.every is None else [self.every - iteration % self.every]
        reach = self.reach
        if reach is not None and reach > iteration:
            ahead.append(reach - iteration)
        return min(ahead, default=None)

    def visit(self, performer: Performer, done: Done) -> None:
        worker = performer.worker
        if worker.fragment != self.owner:
            return
        if worker.index == 0 and self._is_due(done.iteration):
            self._asked = False
            self.on_shown(done.iteration, tuple(map(on_host, worker.variables[self.learner])))
        with self._changed:
            while self._waits(done.iteration):
                self._changed.wait(0.1)

    def _is_due(self, iteration: int) -> bool:
        return iteration > 0 and (self._asked or (self.every is not None and iteration % self.every == 0))

    def _waits(self, iteration: int) -> bool:
        # Members of a learner that spans hosts all wait here, and not in the middle of a program for the first one.
        return self.reach is not None and self.reach <= iteration < self.reporter.until and not self.reporter.stopped()
