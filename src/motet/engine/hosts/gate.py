"""Where the workers of a host are held for a moment, so that all hosts can agree on an iteration.

Whoever leads asks every host to hold, and how far any worker of it may be by now. The farthest of these no worker of
any host has passed: there all can be seen, or all can end. Then all are let go on. Nobody waits for another worker,
only for the answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from motet.engine.cut import WorkerShare, take
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter


class Gate:
    """A visitor of the workers of one host."""

    def __init__(self, reporter: Reporter, on_share: Callable[[int, WorkerShare, float], None]):
        """`on_share` is given what a worker holds at a cut, and how long it took to copy it."""
        self.reporter, self.on_share = reporter, on_share
        self.ahead: Callable[[], int] = lambda: 1
        """How many iterations at most a worker may be beyond where it was seen last, once it is held."""
        self.final = False
        """Whether the end is a cut too."""
        self._cuts: set[int] = set()
        self._held = False
        self._changed = threading.Condition()

    def hold(self) -> int:
        """Let nobody begin an iteration -> the first number of iterations that no worker has passed."""
        with self._changed:
            self._held = True
        with self.reporter.meeting.lock:
            return self.reporter.meeting.farthest + self.ahead()

    def release(self, cut: int | None, until: int | None) -> None:
        """Let everybody go on, to a cut after so many iterations, or to the end there."""
        with self._changed:
            if cut is not None:
                self._cuts.add(cut)
            if until is not None:
                self.reporter.end_at(until)
            self._held = False
            self._changed.notify_all()

    def limit(self, iteration: int) -> int | None:
        ahead = [cut - iteration for cut in self._cuts if cut > iteration]
        return min(ahead) if ahead else None

    def visit(self, performer: Performer, done: Done) -> None:
        with self._changed:
            while self._held and not self.reporter.stopped():
                self._changed.wait(0.1)
        at_end = self.final and done.iteration == self.reporter.until
        if done.iteration in self._cuts or at_end:
            began = time.monotonic()
            share = take(performer)
            self.on_share(done.iteration, share, time.monotonic() - began)
