"""Observations outside of the bounds that their space declares: counted, and the worst one kept.

Environments of other libraries often leave their own bounds by a little, and no algorithm here relies on them. So a run
goes on and tells of it when it is over. Nothing here imports JAX: worker processes use it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

COUNT, EXCESS, PART, PLACE, VALUE = range(5)
"""What a record says, in so many numbers: how many values lay outside; and of the worst, how far (relative to its
bound, or to 1, if that is more), in which part of the observation, where in it, and what it was."""
RECORD = 5


class Bounds(NamedTuple):
    """A part of an observation: what to call it, and what it should lie between, for each of its numbers."""

    path: str
    low: np.ndarray
    high: np.ndarray


def note(record: np.ndarray, part: int, bounds: Bounds, batch: np.ndarray, outside: np.ndarray) -> None:
    """Add to a record what of a batch [n, *shape] lies outside, where `outside` says so."""
    values = batch.astype(np.float64)
    low, high = (np.broadcast_to(bound, batch.shape).astype(np.float64) for bound in (bounds.low, bounds.high))
    with np.errstate(invalid="ignore"):  # infinity by infinity, where there is no bound
        below, above = low - values, values - high
        excess = np.where(below > 0, below / np.maximum(1, np.abs(low)), above / np.maximum(1, np.abs(high)))
    excess = np.where(outside, excess, 0)
    record[COUNT] += np.count_nonzero(outside)
    worst = int(excess.argmax())
    if excess.flat[worst] > record[EXCESS]:
        place = worst % max(1, values[0].size)
        record[EXCESS:] = excess.flat[worst], part, place, values.flat[worst]


@dataclass(frozen=True)
class Outside:
    """How many numbers lay outside of their bounds, and the worst of them, in words."""

    count: int = 0
    excess: float = 0.0
    worst: str = ""

    def __add__(self, other: Outside) -> Outside:
        larger = max(self, other, key=lambda each: each.excess)
        return Outside(self.count + other.count, larger.excess, larger.worst)

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        numbers = "1 observed number" if self.count == 1 else f"{self.count:,} observed numbers"
        return f"{numbers} outside of the bounds that the space declares; the worst: {self.worst}"

    @classmethod
    def read(cls, record: Sequence[float] | np.ndarray, parts: Sequence[Bounds]) -> Outside:
        if not record[COUNT]:
            return cls()
        bounds, place, value = parts[int(record[PART])], int(record[PLACE]), float(record[VALUE])
        low, high = (float(np.ravel(bound)[place]) for bound in (bounds.low, bounds.high))
        where = [int(index) for index in np.unravel_index(place, bounds.low.shape)]
        side = f"below {low:.7g}" if value < low else f"above {high:.7g}"
        at = f" at {where}" if where else ""
        return cls(int(record[COUNT]), float(record[EXCESS]), f"{bounds.path}{at} was {value:.7g}, {side}")


class Tally:
    """What the pools of one environment have seen so far; they may be closed by several threads."""

    def __init__(self) -> None:
        self._sum, self._lock = Outside(), threading.Lock()

    def __reduce__(self) -> tuple[type[Tally], tuple[()]]:
        """An environment that is sent to another process begins to count there."""
        return Tally, ()

    def add(self, outside: Outside) -> None:
        with self._lock:
            self._sum += outside

    def take(self) -> Outside:
        """All of it, once."""
        with self._lock:
            taken, self._sum = self._sum, Outside()
        return taken


def take(env: Any) -> Outside:
    """What the closed pools of any environment have seen; those that are compiled do not look."""
    tally = getattr(env, "outside", None)
    return tally.take() if isinstance(tally, Tally) else Outside()
