"""What each worker did in a few early iterations: when it computed, waited, sent and received.

The record has a constant size: a few iterations, soon after everything is compiled, and of each worker at most so many
spans. While a worker is looked at it waits for the end of each of its calls, so that the time of a call is its own and
not that of whoever reads its result; nothing that is computed changes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax

Kind = Literal["compute", "environments", "replay", "wait", "send", "receive"]

SKIPPED = 2
"""So often a worker has come to the end of an iteration, or of a call of many, before it is looked at: in the first
everything is compiled."""
LOOKS = 4
"""So many iterations, or calls of many, are looked at."""
MOST = 2000
"""Spans of one worker."""


class Span(NamedTuple):
    """What a worker did from `start` to `end`, in seconds by one clock for all workers of a process."""

    kind: Kind
    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Lane:
    """What one worker did."""

    name: str
    fragment: str
    spans: tuple[Span, ...]


@dataclass
class Recorder:
    """The record of one worker while it runs."""

    passed: int = 0
    """How often the end of an iteration, or of a call of many, was passed."""
    on: bool = False
    spans: list[Span] = field(default_factory=list)

    def iterated(self) -> None:
        self.on = SKIPPED <= self.passed < SKIPPED + LOOKS and len(self.spans) < MOST
        self.passed += 1

    def add(self, kind: Kind, name: str, start: float) -> None:
        """Something that began at `start` has ended now. Whoever calls it looks first whether the record is `on`: most
        of a run, there is nothing to do."""
        if len(self.spans) < MOST:
            self.spans.append(Span(kind, name, start, time.perf_counter()))

    def computed(self, name: str, start: float, result: Any) -> None:
        """A call that was made at `start` has given `result`, which may still be on its way."""
        jax.block_until_ready(result)
        self.add("compute", name, start)

    def lane(self, name: str, fragment: str) -> Lane:
        return Lane(name, fragment, tuple(self.spans))
