"""What is no result of ours: how many cores other processes use meanwhile, and how fast the machine itself is.

A processor that is shared with others, or that has been busy for long, may be half as fast as it was a minute before. A
fixed piece of work beside each measurement tells.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

STAT = Path("/proc/stat")


@dataclass
class Others:
    """Cores that others keep busy since this was made; 0 where the system does not say."""

    began: tuple[float, float, float] = field(default_factory=lambda: _clocks())

    def cores(self) -> float:
        wall, busy, own = (now - before for now, before in zip(_clocks(), self.began, strict=True))
        return max(0.0, busy - own) / wall if wall > 0 else 0.0


def _clocks() -> tuple[float, float, float]:
    """Seconds: of the wall's clock, of all busy cores, and of this process with its children that have ended."""
    now = time.perf_counter()
    try:
        user, nice, system, _, _, irq, soft, *_ = map(int, STAT.read_text().split("\n", 1)[0].split()[1:])
    except (OSError, ValueError):
        return now, 0.0, 0.0
    own = os.times()
    busy = (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
    return now, busy, own.user + own.system + own.children_user + own.children_system


def yardstick() -> float:
    """Seconds that a fixed piece of Python takes now."""
    took = []
    for _ in range(5):
        start, total = time.perf_counter(), 0
        for number in range(200_000):
            total += number * number
        took.append(time.perf_counter() - start)
    return statistics.median(took)
