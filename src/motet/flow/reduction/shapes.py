"""Rules of the primitives that lay the same numbers out in another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import prod

import numpy as np

from motet.flow.reduction.equation import Equation, Rule
from motet.flow.reduction.share import COUNTED, POSITION, ROWS, SAME, UNKNOWN, Share, function, join, mixed, worst


def keep(equation: Equation, shares: Sequence[Share]) -> Share:
    """Broadcasts, transposes, copies."""
    return shares[0]


def passed(equation: Equation, shares: Sequence[Share]) -> list[Share]:
    """As many results as operands, unchanged."""
    return list(shares)


def reshape(equation: Equation, shares: Sequence[Share]) -> Share:
    share, before, after = shares[0], equation.rows(0), equation.rows_out
    if before is None or after is None or share.kind in ("mixed", "unknown"):
        return share
    alone = equation.shape(0)[before] == equation.shape_out[after]
    if share.kind != "rows" and (alone or share.constant is not None):
        return share
    if share.kind in ("part", "position"):
        return UNKNOWN
    blocks = relaid(equation.shape(0), before, share.blocks, equation.shape_out, after)
    return UNKNOWN if blocks is None else replace(ROWS, blocks=blocks, degree=share.degree)


def relaid(before: tuple[int, ...], axis: int, blocks: int, after: tuple[int, ...], new_axis: int) -> int | None:
    """The blocks of a row axis after a reshape; None: what a piece has is no share of blocks any more.

    Flat, the array is a run of `count` blocks of `size` numbers, of each of which a piece has a slice.
    """
    count = prod(before[:axis]) * blocks
    size = before[axis] // blocks * prod(before[axis + 1 :])
    outer, inner = prod(after[:new_axis]), prod(after[new_axis + 1 :])
    return None if count % outer or size % inner else count // outer


def concatenate(equation: Equation, shares: Sequence[Share]) -> Share:
    axis = equation.params["dimension"]
    if equation.rows_out == axis:
        return _rows_behind_rows(equation, shares, axis)
    single = all(equation.shape(place)[axis] == 1 for place in range(len(shares)))
    if single and POSITION in shares and worst(shares) is None:
        return replace(POSITION, columns=tuple(shares))
    return _beside(shares)


def stack(equation: Equation, shares: Sequence[Share]) -> Share:
    return _beside(shares)


def unstack(equation: Equation, shares: Sequence[Share]) -> Share:
    return shares[0]


def tile(equation: Equation, shares: Sequence[Share]) -> Share:
    share, axis, repeats = shares[0], equation.rows(0), equation.params["reps"]
    if axis is None or repeats[axis] == 1 or share.kind not in ("rows", "position"):
        return share
    return replace(share, blocks=share.blocks * repeats[axis]) if share.kind == "rows" else UNKNOWN


def _beside(shares: Sequence[Share]) -> Share:
    """Values in one array, where it matters no longer which number they are."""
    if len(set(shares)) > 1:
        shares = [share if share.zero else replace(share, constant=None) for share in shares]
    return join(shares, "an array")


def _rows_behind_rows(equation: Equation, shares: Sequence[Share], axis: int) -> Share:
    spoiled = worst(shares)
    if spoiled is not None:
        return spoiled
    sizes = {equation.shape(place)[axis] // share.blocks for place, share in enumerate(shares)}
    lone = any(equation.rows(place) != axis for place in range(len(shares)))
    if lone or len(sizes) > 1 or any(share.kind not in ("rows", "same") for share in shares):
        return UNKNOWN
    degrees = {share.degree for share in shares if not share.zero}
    if len(degrees) > 1:
        return mixed("an array of values that grow differently with the number of rows")
    blocks = sum(share.blocks for share in shares)
    return replace(ROWS, blocks=blocks, degree=degrees.pop() if degrees else Fraction(0))


def cut_out(share: Share, size: int, start: int, stop: int) -> Share:
    """Rows start:stop of `size`."""
    if (start, stop) == (0, size) or share.kind in ("same", "part", "mixed", "unknown"):
        return share
    if share.kind == "position":
        return UNKNOWN
    block = size // share.blocks
    if start % block or stop % block:
        return mixed("some of the rows")
    return replace(share, blocks=(stop - start) // block)


def take_slice(equation: Equation, shares: Sequence[Share]) -> Share:
    share, axis, params = shares[0], equation.rows(0), equation.params
    if axis is None:
        return replace(share, columns=())
    if params["strides"] and params["strides"][axis] > 1:
        return mixed("some of the rows") if share.kind == "rows" else share
    return cut_out(share, equation.shape(0)[axis], params["start_indices"][axis], params["limit_indices"][axis])


def split(equation: Equation, shares: Sequence[Share]) -> list[Share]:
    share, axis, sizes = shares[0], equation.params["axis"], equation.params["sizes"]
    if axis != equation.rows(0):
        return [share] * len(sizes)
    ends = np.cumsum([0, *sizes]).tolist()
    return [cut_out(share, ends[-1], start, stop) for start, stop in pairwise(ends)]


def reverse(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,), turned = shares, equation.rows(0) in equation.params["dimensions"]
    return mixed("rows in reverse order") if turned and share.kind in ("rows", "position") else share


def pad(equation: Equation, shares: Sequence[Share]) -> Share:
    axis = equation.rows(0)
    if axis is not None and equation.params["padding_config"][axis] != (0, 0, 0):
        return worst(shares) or UNKNOWN
    return _beside(shares)


def dynamic_slice(equation: Equation, shares: Sequence[Share]) -> Share:
    share, *starts = shares
    where = function(starts, "a slice") if starts else SAME
    if where.kind != "same":
        return worst(shares) or where
    axis = equation.rows(0)
    whole = axis is None or equation.params["slice_sizes"][axis] == equation.shape(0)[axis]
    return share if whole or share.kind not in ("rows", "position") else mixed("some of the rows")


def dynamic_update(equation: Equation, shares: Sequence[Share]) -> Share:
    old, new, *starts = shares
    where, axis = function(starts, "an update") if starts else SAME, equation.rows(0)
    if where.kind != "same":
        return worst(shares) or where
    if axis is not None and equation.shape(0)[axis] != equation.shape(1)[axis]:
        return worst(shares) or UNKNOWN
    return _beside([old, new])


def iota(equation: Equation, shares: Sequence[Share]) -> Share:
    if equation.rows_out != equation.params["dimension"]:
        return SAME
    return POSITION if np.issubdtype(equation.params["dtype"], np.integer) else mixed(COUNTED.why)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("broadcast_in_dim", "transpose", "copy", "stop_gradient", "name", "tie"), keep),
    **dict.fromkeys(("optimization_barrier", "sharding_constraint", "device_put"), passed),
    **dict.fromkeys(("reshape", "squeeze"), reshape),
    "concatenate": concatenate,
    "stack": stack,
    "unstack": unstack,
    "tile": tile,
    "slice": take_slice,
    "split": split,
    "rev": reverse,
    "pad": pad,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update,
    "iota": iota,
}
