"""What the parts of a run do of late, as numbers with names: for the screen, TensorBoard and trackers.

Looking changes nothing. Numbers are read while others change them: each is whole, though two may be a moment apart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from motet.engine.assemble import Assembly

INTERVAL = 1.0
"""Seconds between two looks, at least."""


class Usage:
    """Reads an assembly from time to time; what it says is of the time since the look before.

    `FRAGMENT/iteration_seconds`: how long an iteration takes, mean over replicas
    `FRAGMENT/computing`: the share of the time in which it waits for nobody
    `FRAGMENT/waiting/WHOM`: the share in which it waits for a fragment or its environments
    `LINK/bytes_per_second`, `LINK/depth`, `LINK/lag`: what went over a link, messages under way now, and how old values
    were when they were read, in iterations
    `compile_seconds`: what the busiest replica has spent compiling since the start
    """

    def __init__(self, assembly: Assembly, clock: Callable[[], float] = time.perf_counter):
        self.assembly, self.clock = assembly, clock
        self.last = self.began = clock()
        self.before: dict[str, float] = {}

    def due(self) -> bool:
        return self.clock() - self.last >= INTERVAL

    def look(self) -> dict[str, float]:
        now = self.clock()
        seconds, self.last = max(now - self.last, 1e-9), now
        compiling = max(each.home.compiling for each in self.assembly.performers)
        return {"compile_seconds": compiling, **self._fragments(seconds), **self._links(seconds)}

    def _gained(self, name: str, value: float) -> float:
        """How much a number has grown since the look before. What a ledger cleared meanwhile began anew."""
        before, self.before[name] = self.before.get(name, 0.0), value
        return value - before if value >= before else value

    def _fragments(self, seconds: float) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in self.assembly.plan.fragments:
            crew = [each for each in self.assembly.performers if each.worker.fragment == name]
            if not crew:
                continue  # it lies on another host
            done = sum(self._gained(f"{each.worker.name} done", each.worker.iteration) for each in crew)
            if done:
                found[f"{name}/iteration_seconds"] = seconds * len(crew) / done
            if len(self.assembly.performers) == 1 and not crew[0].ledger.waiting:
                continue  # a program that nothing holds up
            waited: dict[str, float] = {}
            for each in crew:
                for whom, total in dict(each.ledger.waiting).items():
                    gained = self._gained(f"{each.worker.name} waiting {whom}", total)
                    share = min(1.0, gained / seconds) / len(crew)
                    part = whom.partition("[")[0]
                    waited[part] = waited.get(part, 0.0) + share
            found[f"{name}/computing"] = max(0.0, 1.0 - sum(waited.values()))
            found |= {f"{name}/waiting/{whom}": share for whom, share in waited.items()}
        return found

    def _links(self, seconds: float) -> dict[str, float]:
        found: Counter[str] = Counter()
        for (wire, _, _), channel in self.assembly.channels.items():
            if wire in self.assembly.recurring:
                found[f"{wire.link}/bytes_per_second"] += channel.bytes
                found[f"{wire.link}/depth"] += len(channel.queue)
        bytes_ = {name: self._gained(name, total) / seconds for name, total in found.items() if "/bytes" in name}
        return {**found, **bytes_, **self._lags()}

    def _lags(self) -> Mapping[str, float]:
        reads: Counter[str] = Counter()
        ages: Counter[str] = Counter()
        for each in self.assembly.performers:
            for wire, counted in dict(each.ports.ages).items():
                for age, count in dict(counted).items():
                    reads[wire.link] += count
                    ages[wire.link] += age * count
        lags = {}
        for link in reads:
            new = self._gained(f"{link} reads", reads[link])
            old = self._gained(f"{link} ages", ages[link])
            if new:
                lags[f"{link}/lag"] = old / new
        return lags
