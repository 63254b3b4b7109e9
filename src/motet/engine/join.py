"""Pieces of a variable on their way: cut where they leave, put together where they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.place import Place
from motet.flow import combine
from motet.flow.graph import Var
from motet.plan.route import Piece


def cut_piece(leaf: Any, piece: Piece) -> Any:
    """The rows of a leaf that one message carries."""
    return leaf if piece.axis is None else _rows(leaf, piece.axis, piece.start, piece.stop)


def join(var: Var, place: Place, parts: Sequence[tuple[Piece, Any]]) -> tuple[Any, ...]:
    """A variable's leaves from the pieces that came, in the order of their senders."""
    leaves = []
    for leaf, axis in enumerate(var.axes):
        mine = [value for piece, value in parts if (piece.var, piece.leaf) == (var.name, leaf)]
        if axis is None:
            whole = mine[0] if len(mine) == 1 else combine.join(_how(var, leaf), [place.first(part) for part in mine])
            leaves.append(place.put(whole))
        elif len(mine) == 1:
            leaves.append(place.put(mine[0], axis))
        else:
            leaves.append(_concatenate(mine, place, axis))
    return tuple(leaves)


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
