"""The cuts of a run over hosts: when one is due, what of it has come, and the last one that is whole."""

from __future__ import annotations

import time
from collections.abc import Callable

from motet.engine.cut import RunCut, WorkerShare
from motet.engine.cutter import Pending, Watched

EVERY = 5.0
"""Seconds between two cuts, unless taking one takes long."""
SHARE = 0.03
"""The part of the time that cuts may take."""


class Cuts:
    """What whoever leads a run keeps, to go on from when a host is lost."""

    def __init__(
        self,
        workers: int,
        watched: Callable[[], Watched],
        on_cut: Callable[[RunCut], None] = lambda cut: None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ):
        """There are so many `workers`. `watched` is what belongs to the metrics that have been told; a cut of which
        that is not known any more serves to go on from, but is no checkpoint: `on_cut` is not told of it."""
        self.workers, self.watched, self.on_cut, self.every, self.clock = workers, watched, on_cut, every, clock
        self.last: RunCut | None = None
        self.taken = 0
        self.cost = 0.0
        """Seconds that the last cut took."""
        self._pending: dict[int, Pending] = {}
        self._next = clock() + every

    @property
    def due(self) -> bool:
        return not self._pending and self.clock() >= self._next

    @property
    def waiting(self) -> bool:
        """Whether one is agreed on that is not whole yet."""
        return bool(self._pending)

    def agreed(self, iteration: int, seconds: float) -> None:
        """All workers will be seen after so many iterations; to agree on it has taken so long."""
        self._pending[iteration] = Pending()
        self.cost = seconds
        self.told()

    def add(self, iteration: int, share: WorkerShare, seconds: float) -> None:
        """A worker's share has come, which took so long to copy. At the end of a run they come unasked."""
        found = self._pending.setdefault(iteration, Pending())
        found.shares[share.worker] = share
        self.cost += seconds / self.workers
        self.told()
        self._complete(iteration)

    def told(self) -> None:
        """Metrics up to some iteration have been told, and no more."""
        iteration, watched = self.watched()
        if iteration in self._pending:
            self._pending[iteration].watched = watched
            self._complete(iteration)

    def forget(self) -> None:
        """The generation is over: what was not whole will not come."""
        self._pending.clear()
        self._next = self.clock() + self.every

    def _complete(self, iteration: int) -> None:
        found = self._pending.get(iteration)
        if found is None or len(found.shares) < self.workers:
            return
        if found.watched is None and self.watched()[0] < iteration:
            return  # its metrics are still to come
        del self._pending[iteration]
        self.taken += 1
        self.last = RunCut(iteration, found.shares, found.watched or {})
        self._next = self.clock() + max(self.every, self.cost / SHARE)
        if found.watched is not None:
            self.on_cut(self.last)
