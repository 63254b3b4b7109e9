"""Takes cuts of a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.engine.cut import RunCut, WorkerShare, take
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter

Watched = tuple[int, Mapping[str, Any]]
"""Of which iteration metrics are, and what belongs to them."""


@dataclass
class Pending:
    """A cut that some workers have yet to come to, or whose metrics are still to be told."""

    shares: dict[str, WorkerShare] = field(default_factory=dict)
    watched: Mapping[str, Any] | None = None


class Cutter:
    """A visitor that takes a cut when one is `due`, at the end, and where it is told to `stop` the run.

    When that is may follow the clock. All workers are then asked for their share at one iteration that none has
    passed; whoever comes by copies its own and goes on.
    """

    def __init__(
        self,
        reporter: Reporter,
        due: Callable[[int], bool],
        on_cut: Callable[[RunCut], None],
        watched: Callable[[], Watched],
        begun: int = 0,
    ):
        """`due` is asked after each iteration of any worker. `on_cut` is given what was taken, in the thread of the
        worker that came last, which waits for it. The run has `begun` after so many iterations."""
        self.reporter, self.due, self.on_cut, self.watched = reporter, due, on_cut, watched
        self.stopping = False
        self._pending: dict[int, Pending] = {}
        self._last = self._begun = begun
        self.every: int | None = None
        """If cuts are due at iterations of certain numbers: how far those are apart."""

    def stop(self) -> bool:
        """End the run as soon as possible, with a cut; False: it has not begun. May be called by a signal handler."""
        self.stopping = self.reporter.meeting.farthest > self._begun
        return self.stopping

    def limit(self, iteration: int) -> int | None:
        return None if self.every is None else self.every - iteration % self.every

    def visit(self, performer: Performer, done: Done) -> None:
        with self.reporter.meeting.lock:
            self._agree(performer.worker.name, done.iteration)
            if done.iteration not in self._pending:
                return
        share = take(performer)  # side by side with the others
        with self.reporter.meeting.lock:
            self._pending[done.iteration].shares[share.worker] = share
            cut = self._complete(done.iteration)
        if cut is not None:
            self.on_cut(cut)

    def rows_told(self) -> None:
        """Metrics up to some iteration have been told; nobody tells more before this returns."""
        with self.reporter.meeting.lock:
            cut = self._complete(self._listen())
        if cut is not None:
            self.on_cut(cut)

    def _agree(self, worker: str, iteration: int) -> None:
        """Name the next iteration at which all will be seen, if there is reason to."""
        until = self.reporter.until
        if iteration == until:
            self._last = until
            self._pending.setdefault(until, Pending())
        elif not self._pending and iteration > self._last and (self.stopping or self.due(iteration)):
            soonest = self.reporter.meeting.soonest(worker)
            if soonest >= until:
                return  # that is the end, where everybody will be seen anyway
            self._last = soonest
            self._pending[soonest] = Pending()
            if self.stopping:
                self.reporter.end_at(soonest)
        self._listen()

    def _listen(self) -> int:
        iteration, told = self.watched()
        if iteration in self._pending:
            self._pending[iteration].watched = told
        return iteration

    def _complete(self, iteration: int) -> RunCut | None:
        """The cut at an iteration, if nothing of it is missing any more."""
        found = self._pending.get(iteration)
        if found is None or found.watched is None or len(found.shares) < self.reporter.meeting.size:
            return None
        del self._pending[iteration]
        return RunCut(iteration, found.shares, found.watched)
