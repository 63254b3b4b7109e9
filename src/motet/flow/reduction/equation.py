"""One equation of a node's program, seen for two numbers of rows.

A dimension is the row axis if the two sizes differ. So nobody has to follow it through reshapes and transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from motet.flow.reduction.share import Share


@dataclass(frozen=True)
class Equation:
    """The same equation with the whole batch and with another number of rows."""

    whole: Any
    other: Any
    constant: Callable[[Any, Any], Share]
    """What the two values of a number say of it."""

    @property
    def name(self) -> str:
        return self.whole.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        return self.whole.params

    def shape(self, operand: int) -> tuple[int, ...]:
        return self.whole.invars[operand].aval.shape

    def rows(self, operand: int) -> int | None:
        """The row axis of an operand."""
        return row_axis(self.shape(operand), self.other.invars[operand].aval.shape)

    @property
    def shape_out(self) -> tuple[int, ...]:
        return self.whole.outvars[0].aval.shape

    @property
    def rows_out(self) -> int | None:
        """The row axis of the (first) result."""
        return row_axis(self.shape_out, self.other.outvars[0].aval.shape)

    @property
    def squares(self) -> bool:
        """Whether the result has rows on two dimensions: all pairs of them."""
        return len(differing(self.shape_out, self.other.outvars[0].aval.shape)) > 1


Rule = Callable[[Equation, Sequence[Share]], Share | list[Share]]
"""What an equation makes of the shares of its operands: that of its results, or of each of them."""


def differing(one: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    return [axis for axis, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def row_axis(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    axes = differing(one, other)
    return axes[0] if axes else None
