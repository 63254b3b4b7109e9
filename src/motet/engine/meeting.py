"""An iteration at whose beginning every worker will be seen, agreed on while they run.

Workers of a plan with lag are in different iterations at any one moment, and none waits for another to be looked at. So
whoever wants to see them all names an iteration that nobody has begun yet. Which one it is may follow the clock: it
changes nothing that is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Meeting:
    """How far each worker is."""

    def __init__(self, workers: Iterable[str] = ()):
        self.lock = threading.RLock()
        self._done = dict.fromkeys(workers, 0)

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._done)

    @property
    def farthest(self) -> int:
        """After how many iterations the worker stands that has done most."""
        return max(self._done.values(), default=0)

    def arrive(self, worker: str, iteration: int) -> None:
        """A worker has done `iteration` iterations. Before it goes on it looks at what has been agreed."""
        with self.lock:
            self._done[worker] = iteration

    def soonest(self, worker: str) -> int:
        """For a worker that has just arrived: the first number of iterations at which all can still be seen.

        That is where it stands, if all others have yet to come there, else one beyond the farthest.
        """
        with self.lock:
            mine = self._done[worker]
            others = [done for name, done in self._done.items() if name != worker]
            return mine if all(done < mine for done in others) else max([mine, *others]) + 1
