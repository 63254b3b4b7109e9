"""Pieces of a variable on their way: cut where they leave, put together where they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.place import Place
from motet.engine.variables import Variables
from motet.flow import combine
from motet.flow.graph import Var
from motet.plan.route import Piece


def cut_piece(leaf: Any, piece: Piece) -> Any:
    """The rows of a leaf that one message carries."""
    return leaf if piece.axis is None else _rows(leaf, piece.axis, piece.start, piece.stop)


def join(vars: Sequence[Var], place: Place, parts: Sequence[tuple[Piece, Any]]) -> Variables:
    """Variables from the pieces that came, in the order of their senders."""
    came: dict[tuple[str, int], list[Any]] = {}
    for piece, value in parts:
        came.setdefault((piece.var, piece.leaf), []).append(value)
    axes = [axis for var in vars for axis in var.axes]
    together = [_together(var, leaf, place, came[var.name, leaf]) for var in vars for leaf in range(len(var.axes))]
    placed = iter(place.put_all(together, axes))
    return {var.name: tuple(islice(placed, len(var.axes))) for var in vars}


def _together(var: Var, leaf: int, place: Place, mine: Sequence[Any]) -> Any:
    """A leaf from what each sender has of it, wherever it lies."""
    axis = var.axes[leaf]
    if axis is not None:
        return mine[0] if len(mine) == 1 else _concatenate(mine, place, axis)
    return mine[0] if len(mine) == 1 else combine.join(_how(var, leaf), [place.first(part) for part in mine])


def _concatenate(parts: Sequence[Any], place: Place, axis: int) -> jax.Array:
    """One array of several parts. Each device gets the rows that it will hold, and no others."""
    rows = sum(part.shape[axis] for part in parts)
    share = rows // len(place.devices)
    shards = []
    for number, device in enumerate(place.devices):
        mine = _overlapping(parts, axis, number * share, (number + 1) * share)
        mine = [Place((device,)).put(part) for part in mine]
        shards.append(mine[0] if len(mine) == 1 else jnp.concatenate(mine, axis))
    if not place.sharded:
        return shards[0]
    shape = (*parts[0].shape[:axis], rows, *parts[0].shape[axis + 1 :])
    return jax.make_array_from_single_device_arrays(shape, place.sharding(axis), shards)


def _overlapping(parts: Sequence[Any], axis: int, low: int, high: int) -> list[Any]:
    """Of parts that follow each other, the rows from `low` to `high`."""
    found, start = [], 0
    for part in parts:
        stop = start + part.shape[axis]
        if start < high and low < stop:
            found.append(_rows(part, axis, max(low - start, 0), min(high, stop) - start))
        start = stop
    return found


def _rows(leaf: Any, axis: int, start: int, stop: int) -> Any:
    if (start, stop) == (0, leaf.shape[axis]):
        return leaf
    if isinstance(leaf, np.ndarray):
        return leaf[(slice(None),) * axis + (slice(start, stop),)]
    return jax.lax.slice_in_dim(leaf, start, stop, axis=axis)


def _how(var: Var, leaf: int) -> combine.Combine:
    how = var.combine[leaf]
    assert how is not None, f"{var.name} came from several senders and is the same everywhere"
    return how
