"""How fast each part of a run went, and whom it waited for."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from motet.engine.supervise import Wait


@dataclass(frozen=True)
class Part:
    """One replica's account, from the end of its first iteration on: what comes before is mostly compilation."""

    name: str
    iterations_per_second: float
    waited: Mapping[str, float]
    """For whom it waited, and which share of the time, largest first."""


@dataclass
class Ledger:
    """The account of one replica while it runs."""

    name: str
    iterations: int = 0
    since: float = 0.0
    until: float = 0.0
    waiting: dict[str, float] = field(default_factory=dict)

    def iterated(self) -> None:
        """Another iteration is done."""
        now = time.perf_counter()
        if not self.since:
            self.since = self.until = now
            self.waiting.clear()
            return
        self.iterations, self.until = self.iterations + 1, now

    def noting(self, waits: Generator[Wait, None, None]) -> Generator[Wait, None, None]:
        """Pass the waits on, and note how long each took to be answered."""
        for wait in waits:
            asked = time.perf_counter()
            yield wait
            self.waiting[wait.whom] = self.waiting.get(wait.whom, 0.0) + time.perf_counter() - asked

    def part(self) -> Part:
        seconds = self.until - self.since
        shares = {whom: each / seconds for whom, each in self.waiting.items()} if seconds > 0 else {}
        largest = dict(sorted(shares.items(), key=lambda item: -item[1]))
        return Part(self.name, self.iterations / seconds if seconds > 0 else 0.0, largest)
