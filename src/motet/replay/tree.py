"""The layout of K-ary sum trees that every implementation shares.

A tree of C leaves is a row of numbers, level after level from the root down. Each level is padded to a multiple of K,
so that the K children of a node lie side by side: with K = 16 in one cache line. A parent is the sum of its children,
added from left to right in float32, and is always computed from them, never by adding a difference: nothing drifts,
and every implementation holds the same bits.

To draw is to walk down from the root with a number t between 0 and its sum: at each node the first child whose
running sum exceeds t is taken, or, where rounding leaves none, the last one that is more than zero; what the children
before it sum to is subtracted from t. A leaf of zero is never reached. t has the 24 bits of float32, so among a
million equal leaves the chance of a single one is off by up to some per cent, in no direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from motet.errors import BadOption


@dataclass(frozen=True)
class TreeShape:
    """Where the levels of a tree lie."""

    leaves: int
    fan_out: int = 16

    def __post_init__(self) -> None:
        if self.fan_out < 2 or self.fan_out & (self.fan_out - 1):
            raise BadOption(f"fan_out must be a power of two from 2 on (8 to 32 are the fastest), got {self.fan_out}.")

    @property
    def shift(self) -> int:
        """log2 of the fan-out."""
        return self.fan_out.bit_length() - 1

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Nodes of each level, the root first."""
        counts = [self.leaves]
        while counts[0] > 1:
            counts.insert(0, -(-counts[0] // self.fan_out))
        return tuple(counts)

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return len(self.counts) - 1

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each level begins, and where the last one ends."""
        offsets = [0]
        for count in self.counts:
            offsets.append(offsets[-1] + -(-count // self.fan_out) * self.fan_out)
        return tuple(offsets)

    @property
    def first_leaf(self) -> int:
        return self.offsets[-2]

    @property
    def nodes(self) -> int:
        """Numbers in all."""
        return self.offsets[-1]
