"""Checkpoints of a run while it goes on: when one is due, and what it says of itself."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.engine.cut import RunCut
from motet.engine.cutter import Cutter
from motet.engine.packing import pack
from motet.engine.run import Reporter
from motet.errors import BadOption
from motet.runs.metrics import Meter
from motet.runs.saver import Saver

USUALLY = 30.0
"""Seconds between two checkpoints, unless saving takes long."""
SHARE = 0.03
"""The part of the time that saving may take, unless somebody asks for an interval."""
CARE = 2.0
"""The next checkpoint is begun as if it took so many times longer than the last one."""


@dataclass(frozen=True)
class Interval:
    """How often a run is saved, and how much of it is kept."""

    seconds: float | None = None
    """None: every 30 s, or less often where saving would take more than 3% of the time."""
    steps: int | None = None
    """Environment steps; then the clock does not count."""
    keep: int = 3
    """How many checkpoints remain, the newest ones, and the best one besides; 0: none is made."""

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise BadOption(f"checkpoint_seconds must be above 0, got {self.seconds}; keep=0 makes no checkpoints.")
        if self.steps is not None and self.steps < 1:
            raise BadOption(f"checkpoint_steps must be at least 1, got {self.steps}; keep=0 makes no checkpoints.")
        if self.seconds is not None and self.steps is not None:
            raise BadOption("checkpoint_seconds and checkpoint_steps exclude each other; give one of them.")
        if self.keep < 0:
            raise BadOption(f"keep must be at least 0, got {self.keep}.")


class Saving:
    """Saves a run as its interval says. A visitor of its workers."""

    def __init__(
        self, reporter: Reporter, meter: Meter, saver: Saver, interval: Interval, about: Mapping[str, Any], begun: int
    ):
        """`about` is what each checkpoint says of the run, `begun` after how many iterations it begins."""
        self.meter, self.saver, self.interval, self.about = meter, saver, interval, about
        steps = reporter.graph.steps_per_iteration
        self.every = math.ceil(interval.steps / steps) if interval.steps else None
        self.cutter = Cutter(reporter, self.is_due, self.save, meter.state, begun)
        self.cutter.every = self.every
        self._last, self._asked, self._seen, self._gap = begun, 0.0, time.monotonic(), 0.0
        self._next = time.monotonic() + (interval.seconds or USUALLY)

    def is_due(self, iteration: int) -> bool:
        if self.every is not None:
            return iteration // self.every > self._last // self.every
        now = time.monotonic()
        self._seen, self._gap = now, now - self._seen
        if now < self._next or self.saver.busy:
            return False
        self._asked = self._asked or now
        return True

    def save(self, cut: RunCut) -> None:
        window = self.meter.episodes.mean(1)
        self.saver.save(cut.iteration, window, lambda: self._checkpoint(cut))
        now, wait = time.monotonic(), self.interval.seconds or max(USUALLY, self.saver.seconds / SHARE)
        # Asking for the next one, taking and writing it must be over when the interval is: until then a kill loses all
        # that came after this one.
        taken = self._gap + (now - self._asked if self._asked else 0.0)
        ahead = min(wait / 2, CARE * (taken + self.saver.seconds))
        self._last, self._asked, self._next = cut.iteration, 0.0, now + wait - ahead

    def _checkpoint(self, cut: RunCut) -> tuple[dict[str, Any], Any]:
        told, arrays = pack(cut)
        return {**self.about, "cut": told, "written": round(time.time(), 3)}, arrays
