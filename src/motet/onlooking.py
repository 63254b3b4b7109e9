"""The watch of a run over hosts: the same judge and the same stopper, with the learner in another process.

The learner state comes in the order of iterations and waits here for its evaluation. How far the learner may go
meanwhile follows from iteration numbers, so that evaluations are of the same policies and the run ends at the same
iteration as in one process. What comes a second time, since a host was lost, has been seen.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from motet.watching import Watch


class Onlooking:
    """What a driver of hosts asks of a run's watch (`engine.hosts.onlooker.Onlooker`)."""

    def __init__(self, watch: Watch, begun: int = 0):
        """The run has `begun` after so many iterations."""
        self.judge, self.stopper = watch.judge, watch.stopper
        self.seen = begun
        """The learner states of so many iterations have come."""
        self.waiting: deque[tuple[int, tuple[Any, ...]]] = deque()

    @property
    def every(self) -> int | None:
        return self.judge.every if self.judge else None

    def asks(self) -> bool:
        return self.judge is not None and not self.waiting and self.judge.is_time

    def look(self, iteration: int, leaves: tuple[Any, ...]) -> None:
        if iteration > self.seen:
            self.seen = iteration
            self.waiting.append((iteration, leaves))

    def turn(self, told: int) -> None:
        """Begin the next evaluation if none is under way."""
        if self.judge is None or self.judge.busy:
            return
        self.judge.wait()  # it is over: what it raised is raised here
        # A condition sees an evaluation after the metrics of its iteration, in whatever order they came.
        if self.waiting and (told >= self.waiting[0][0] or not self.judge.at_once):
            self.judge.begin(*self.waiting.popleft())

    def reach(self, told: int) -> int | None:
        # The judge first: once an evaluation is over, the stopper has been told of it.
        bounds = [self.judge.reach() if self.judge else None, self.stopper.reach(told) if self.stopper else None]
        return min((each for each in bounds if each is not None), default=None)

    def end(self) -> int | None:
        return self.stopper.end if self.stopper else None

    def ended(self, iteration: int) -> None:
        if self.stopper:
            self.stopper.target = iteration

    def finish(self) -> None:
        """The hosts have come to the end: evaluate all that is still waiting for it."""
        while self.judge and self.waiting:
            self.judge.wait()
            self.judge.begin(*self.waiting.popleft())
