"""How fast each worker of a run went, and whom it waited for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from motet.engine.timeline import Recorder


@dataclass(frozen=True)
class Account:
    """How fast one worker went, from the end of its first iteration on: what comes before is mostly compilation."""

    name: str
    iterations_per_second: float
    waited: Mapping[str, float]
    """For whom it waited, and which share of the time, largest first."""


@dataclass
class Ledger:
    """The account of one worker while it runs."""

    name: str
    first: int | None = None
    """The number of iterations that were done when counting began."""
    iterations: int = 0
    since: float = 0.0
    until: float = 0.0
    waiting: dict[str, float] = field(default_factory=dict)
    recorder: Recorder = field(default_factory=Recorder)
    """What it did in a few iterations."""

    def iterated(self, done: int) -> None:
        """So many iterations are done."""
        now = time.perf_counter()
        self.recorder.iterated()
        if self.first is None:
            self.first = done + 1  # the end of the first iteration after this
        if done == self.first:
            self.since = self.until = now
            self.waiting.clear()
        elif done > self.first:
            self.iterations, self.until = done - self.first, now

    def waited(self, whom: str, seconds: float) -> None:
        self.waiting[whom] = self.waiting.get(whom, 0.0) + seconds

    def account(self) -> Account:
        seconds = self.until - self.since
        shares = {whom: each / seconds for whom, each in self.waiting.items()} if seconds > 0 else {}
        largest = dict(sorted(shares.items(), key=lambda item: -item[1]))
        return Account(self.name, self.iterations / seconds if seconds > 0 else 0.0, largest)
