"""What a piece of a batch knows of a value of the whole batch, and how sums and products of such values come out.

A batch may be cut into pieces, each with its own rows. A value in the program of one piece is then, compared with the
same value in a program that has the whole batch, one of these:

- `same`: equal in all pieces (along a row axis, too, if it has one: a constant, broadcast);
- `rows`: the piece's own rows of the whole value;
- `part`: a partial result, the sum, largest or smallest over the piece's rows, to be combined over the pieces;
- `position`: the number of a row within its piece, which only serves to find that row;
- `mixed`: computed from the piece's own results in a way that no combination of pieces undoes;
- `unknown`: nobody can tell.

`degree` says how a value grows with the number of rows in a piece: a sum over rows has degree 1, a mean 0, and the
share 1/N of a row in a mean -1. Where a degree is lost, as in the logarithm of a count, so is the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from motet.flow.combine import Combine

Kind = Literal["same", "rows", "part", "position", "mixed", "unknown"]
Operation = Literal["sum", "max", "min", "any", "all"]

OPPOSITE: dict[str, Operation] = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Share:
    """What a piece knows of a value."""

    kind: Kind
    degree: Fraction = Fraction(0)
    operation: Operation | None = None
    """Of a part: what combines the pieces."""
    blocks: int = 1
    """Of rows: into how many equal runs the row axis falls, of each of which a piece has its share."""
    constant: tuple[Any, Any] | None = None
    """The number that it is everywhere, with the whole batch and with the other number of rows."""
    why: str = ""
    """Of what is mixed, or would be as a quantity: how that came about."""
    columns: tuple[Share, ...] = ()
    """Of an array of indices: what each of its columns is, where one is a position."""

    @property
    def zero(self) -> bool:
        return self.constant is not None and not any(self.constant)

    @property
    def combine(self) -> Combine | None:
        """How the pieces of such a result become that of the whole batch; None: it is the same in all of them."""
        if self.kind == "same" and self.degree in (0, 1):
            return "sum" if self.degree else None
        if self.kind == "part" and self.operation == "sum":
            return "sum" if self.degree == 1 else "mean"
        return self.operation or "mean"

    @property
    def exact(self) -> bool:
        """Whether `combine` gives what the whole batch would."""
        if self.kind in ("same", "part"):
            return self.degree in (0, 1) and (self.operation in (None, "sum") or self.degree == 0)
        return False

    def scaled(self, degree: Fraction | int) -> Share:
        return replace(self, degree=self.degree + degree, constant=None)


SAME = Share("same")
ROWS = Share("rows")
ZERO = Share("same", constant=(0, 0))
POSITION = Share("position")
UNKNOWN = Share("unknown")
COUNTED = Share("unknown", why="row numbers, which every piece counts for itself")
"""Computed from positions: it may still be an index, or be compared, but as a quantity it would be mixed."""


def mixed(why: str) -> Share:
    return Share("mixed", why=why)


def part(operation: Operation, degree: Fraction | int = 0) -> Share:
    return Share("part", Fraction(degree), operation)


def words(share: Share) -> str:
    """A value, for a message."""
    if share.kind == "part":
        name = {"any": "whether any row is", "all": "whether all rows are"}.get(str(share.operation))
        return name or f"a {share.operation} over the rows"
    return {"mixed": share.why, "rows": "rows"}.get(share.kind, "a number")


def worst(shares: Sequence[Share]) -> Share | None:
    """The share that spoils a result, whatever else it is computed from."""
    bad = [share for share in shares if share.kind in ("mixed", "unknown")]
    return min(bad, key=lambda share: share.kind, default=None)


def alongside(shares: Sequence[Share]) -> Share:
    """Rows where any are rows, else what is the same: for values that are taken row by row. Degrees are the
    caller's."""
    rows = [share for share in shares if share.kind == "rows"]
    if len({share.blocks for share in rows}) > 1:
        return mixed("rows that are in different orders side by side")
    return replace(rows[0], degree=Fraction(0), constant=None) if rows else SAME


def join(shares: Sequence[Share], what: str) -> Share:
    """A value that is now one, now another of `shares`, or their sum: what holds for each holds for it."""
    spoiled = worst(shares)
    if spoiled is not None:
        return spoiled
    nonzero = [share for share in shares if not share.zero]
    if not nonzero:
        return shares[0]
    if len(set(nonzero)) == 1 and (nonzero[0].constant is None or len(nonzero) == len(shares)):
        return nonzero[0]
    if any(share.kind == "position" for share in shares):
        return COUNTED
    if len({share.degree for share in nonzero}) > 1:
        return mixed(f"{what} of values that grow differently with the number of rows")
    parts: set[Operation] = {share.operation for share in nonzero if share.operation is not None}
    if not parts:
        return alongside(nonzero).scaled(nonzero[0].degree)
    if len(parts) > 1 or any(share.kind == "rows" for share in nonzero):
        return mixed(f"{what} of {' and '.join(dict.fromkeys(map(words, nonzero)))}")
    return part(parts.pop(), nonzero[0].degree)


def product(shares: Sequence[Share], what: str, degree: Fraction | int) -> Share:
    """A product, or a quotient by what is no part; `degree` is the result's."""
    if any(share.zero for share in shares):
        return ZERO
    spoiled = worst(shares)
    if spoiled is not None:
        return spoiled
    parts = [share for share in shares if share.kind == "part"]
    if any(share.kind == "position" for share in shares):
        return COUNTED
    if not parts:
        return alongside(shares).scaled(degree)
    others = [share for share in shares if share.kind != "part"]
    if len(parts) > 1 or any(share.kind == "rows" for share in others):
        return mixed(f"{what} of {' and '.join(map(words, shares))}")
    if parts[0].operation == "sum":
        return part("sum", degree)
    positive = all(share.constant and min(share.constant) > 0 and not share.degree for share in others)
    return parts[0] if positive else mixed(f"{what} of {words(parts[0])} and a number of either sign")


def function(shares: Sequence[Share], what: str) -> Share:
    """Any function of these values, taken row by row."""
    spoiled = worst(shares)
    if spoiled is not None:
        return spoiled
    if any(share.kind == "part" for share in shares):
        return mixed(f"{what} of {' and '.join(dict.fromkeys(words(s) for s in shares if s.kind != 'same'))}")
    if any(share.degree for share in shares):
        return mixed(f"{what} of a value that grows with the number of rows")
    if any(share.kind == "position" for share in shares):
        return COUNTED
    return alongside(shares)
