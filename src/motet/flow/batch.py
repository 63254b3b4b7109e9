"""Statistics over the whole batch, whatever its sharding.

A node may run in one piece or as several shards of an SPMD program. Inside it, `jnp.mean` would see one shard; the
functions here see the batch. The tracer opens a scope around each node, which tells them how many pieces a mesh axis
joins.

What goes over all pieces is marked (see reduction/marks.py): so it is known of a node whether it takes statistics, and
a plan that replicates it without a collective must say so (`per_replica`); it is known of every result whether it is
the same in all pieces; and derivatives go back over the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadAlgorithm
from motet.flow.reduction import marks

SHARDS = "shards"
"""The mesh axis of every sharded fragment."""

Axis = int | tuple[int, ...] | None


@dataclass
class Scope:
    """What surrounds the node being traced."""

    pieces: Fraction = Fraction(1)
    """How many pieces of this size the batch has that the statistics are of."""
    sharded: bool = False
    """Whether a mesh axis joins them; without, a trace only tells what shapes there would be."""
    blocks: dict[int, int] = field(default_factory=dict)
    """Number of rows -> the blocks that they fall into, of each of which a piece has its share."""

    @property
    def axes(self) -> list[tuple[str, int]]:
        """The axes to trace with: the mesh's, and one that nobody uses but that keeps JAX from taking what it traced in
        other surroundings."""
        blocks = "_".join(f"{rows}x{count}" for rows, count in self.blocks.items() if count > 1)
        special = blocks or (self.pieces != 1 and not self.sharded)
        return [
            *([(SHARDS, int(self.pieces))] if self.sharded else []),
            *([(f"pieces_{self.pieces}_{blocks}", 1)] if special else []),
        ]


_scope: ContextVar[Scope | None] = ContextVar("motet_batch_scope", default=None)
_skipping: ContextVar[bool] = ContextVar("motet_batch_skipping", default=False)
"""Whether what is traced may be skipped by some pieces."""


def _current() -> Scope:
    """The surroundings of the node being traced; outside of all nodes, a batch in one piece."""
    return _scope.get() or Scope()


def trace_in(current: Scope, function: Callable[..., Any], *avals: Any) -> Any:
    """A function's jaxpr in these surroundings."""
    token = _scope.set(current)
    try:
        return jax.make_jaxpr(function, axis_env=current.axes)(*avals)
    finally:
        _scope.reset(token)


def batch_sum(values: jax.Array, axis: Axis = None) -> jax.Array:
    """The sum over the whole batch. `axis` must contain the environments' dimension; None: all dimensions."""
    return _across("sum", jnp.sum(values, axis))


def batch_mean(values: jax.Array, weight: jax.Array | None = None, axis: Axis = None) -> jax.Array:
    """The mean over the whole batch, or the one that `weight` gives: sum(weight * values) / sum(weight).

    `weight` is of the shape of `values`. Where it is 0, or False, a value does not count, not even one that is not
    finite; where all of it is, the mean is 0.
    """
    values = jnp.asarray(values)
    dtype = jnp.result_type(values, float)
    if weight is None:
        total = batch_sum(values.astype(dtype), axis)
        count = values.size // max(total.size, 1) * _current().pieces
        return total / np.asarray(int(count), dtype)
    weight = _checked(values, weight)
    counts = weight.astype(dtype)
    total = batch_sum(counts, axis)
    weighted = batch_sum(jnp.where(weight != 0, values, 0) * counts, axis)
    return weighted / jnp.where(total == 0, 1, total)


def batch_moments(values: jax.Array, weight: jax.Array | None = None, axis: Axis = None) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over the whole batch, weighted as `batch_mean` is."""
    mean = batch_mean(values, weight, axis)
    centre = mean if axis is None else jnp.expand_dims(mean, axis)
    return mean, batch_mean(jnp.square(values - centre), weight, axis)


def batch_max(values: jax.Array, axis: Axis = None) -> jax.Array:
    """The largest value of the whole batch. Its gradient goes to the rows that have it, in equal shares."""
    return _extreme("max", axis, values)


def batch_min(values: jax.Array, axis: Axis = None) -> jax.Array:
    """The smallest value of the whole batch. Its gradient goes to the rows that have it, in equal shares."""
    return _extreme("min", axis, values)


def batch_gather(values: jax.Array, axis: int = 0) -> jax.Array:
    """All rows of the batch, in the batch's order, the same in every piece: [N / pieces, ...] -> [N, ...].

    `axis` is where the environments are: 0 for minibatches and samples, 1 for [T, B] values.
    """
    return _rows("gather", values, axis)


def batch_ranks(values: jax.Array, axis: int = 0) -> jax.Array:
    """int32: how many values of the whole batch come before each one; of equal ones the first in the batch does.

    `axis` is where the environments are: 0 for minibatches and samples, 1 for [T, B] values.
    """
    everything = batch_gather(jax.lax.stop_gradient(values), axis)
    order = jnp.argsort(everything.reshape(-1), stable=True)
    ranks = jnp.zeros(order.shape, jnp.int32).at[order].set(jnp.arange(order.size, dtype=jnp.int32))
    return _rows("own", ranks.reshape(everything.shape), axis)


def where_any(mask: jax.Array, compute: Callable[[], Any], otherwise: Any) -> Any:
    """`compute()` in the rows where `mask` is true, `otherwise` in all others; where it is true in none, nothing is
    computed.

    A `jax.lax.cond` on `jnp.any(mask)` chooses for all rows at once, and so for each piece of a batch by itself: a plan
    that cuts it is refused. This chooses row by row, whatever the pieces. `mask` is of the shape of the results, or of
    their first dimensions. What is over the batch must be computed before: a piece that skips would not take part.
    """

    def chosen() -> Any:
        return jax.tree.map(lambda new, old: jnp.where(_over(mask, new), new, old), compute(), otherwise)

    def choose() -> Any:
        token = _skipping.set(True)
        try:
            return jax.lax.cond(jnp.any(mask), chosen, lambda: otherwise)
        finally:
            _skipping.reset(token)

    otherwise = jax.tree.map(jnp.asarray, otherwise)
    return _marked(marks.name("skip"), choose)()


def _over(mask: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.reshape(mask, (*jnp.shape(mask), *[1] * (jnp.ndim(values) - jnp.ndim(mask))))


def row_keys(key: jax.Array, part: jax.Array, count: int, blocks: int, pieces: Fraction) -> jax.Array:
    """A key for each of the `count` rows of piece `part`, by its number in the whole batch: [count]."""
    mine = count // blocks

    def keys(key: jax.Array, part: jax.Array) -> jax.Array:
        rows = part * mine + jnp.arange(mine)
        rows = (jnp.arange(blocks) * int(mine * pieces))[:, None] + rows[None]
        return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows.reshape(-1))

    return _marked(marks.name("keys", 0, blocks), keys)(key, part)


def _checked(values: jax.Array, weight: Any) -> jax.Array:
    if not hasattr(weight, "shape") or jnp.shape(weight) != jnp.shape(values):
        got = f"of the shape {jnp.shape(weight)}" if hasattr(weight, "shape") else repr(weight)
        raise BadAlgorithm(
            f"The weight of a batch's mean must be an array of the shape of the values, {jnp.shape(values)}; got "
            f"{got}. Dimensions are given by name: axis=(0, 1)."
        )
    return jnp.asarray(weight)


# What goes over all pieces.


def _across(what: str, part: jax.Array) -> jax.Array:
    """A result over the rows of every piece, from what each piece has of it."""
    _refuse_to_skip(what)
    return _joined(what, _current().sharded)(part)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _extreme(what: str, axis: Axis, values: jax.Array) -> jax.Array:
    return _across(what, {"max": jnp.max, "min": jnp.min}[what](values, axis))


@_extreme.defjvp
def _extreme_jvp(what: str, axis: Axis, primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[Any, Any]:
    (values,), (change,) = primals, tangents
    found = _extreme(what, axis, values)
    there = values == (found if axis is None else jnp.expand_dims(found, axis))
    return found, batch_sum(jnp.where(there, change, 0), axis) / batch_sum(there.astype(change.dtype), axis)


def _refuse_to_skip(what: str) -> None:
    if _skipping.get():
        raise BadAlgorithm(
            f"motet.where_any should compute rows, but computes a batch_{what}, which is over the whole batch. A piece "
            "in which no row wants it would not take part: compute it before, and use its result."
        )


def _rows(what: str, values: jax.Array, axis: int) -> jax.Array:
    _refuse_to_skip(what)
    current = _current()
    axis = range(jnp.ndim(values))[axis]
    rows = jnp.shape(values)[axis]
    if what == "own":
        rows = int(rows / current.pieces)
    return _moved(what, axis, current.blocks.get(rows, 1), current.pieces, current.sharded)(values)


def _marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    return jax.jit(function)


@functools.cache
def _joined(what: str, sharded: bool) -> Callable[..., Any]:
    over = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}[what]
    return _marked(marks.name(what), lambda part: over(part, SHARDS) if sharded else _unchanged(part))


@functools.cache
def _moved(what: str, axis: int, blocks: int, pieces: Fraction, sharded: bool) -> Callable[..., Any]:
    run = functools.partial({"gather": _gather, "own": _own}[what], axis, blocks, pieces, sharded)
    return _marked(marks.name(what, axis, blocks), lambda values: run(values))


def _gather(axis: int, blocks: int, pieces: Fraction, sharded: bool, values: jax.Array) -> jax.Array:
    before, (rows, *after) = values.shape[:axis], values.shape[axis:]
    shape = (*before, int(rows * pieces), *after)
    if not sharded:
        return _unchanged(values) if pieces == 1 else _resized(values, shape, axis)
    every = jax.lax.all_gather(values.reshape(*before, blocks, rows // blocks, *after), SHARDS, axis=axis + 1)
    return every.reshape(shape)


def _own(axis: int, blocks: int, pieces: Fraction, sharded: bool, values: jax.Array) -> jax.Array:
    before, (rows, *after) = values.shape[:axis], values.shape[axis:]
    shape = (*before, int(rows / pieces), *after)
    if not sharded:
        return _unchanged(values) if pieces == 1 else _resized(values, shape, axis)
    cut = values.reshape(*before, blocks, int(pieces), shape[axis] // blocks, *after)
    return jnp.take(cut, jax.lax.axis_index(SHARDS), axis + 1).reshape(shape)


def _unchanged(values: jax.Array) -> jax.Array:
    """Nothing, in a form that derivatives do not forget as they would a function that returns its argument."""
    return values | False if values.dtype == bool else values * np.asarray(1, values.dtype)


def _resized(values: jax.Array, shape: tuple[int, ...], axis: int) -> jax.Array:
    """Something of that shape, where only shapes are asked for."""
    wanted = shape[axis]
    if wanted <= values.shape[axis]:
        return jax.lax.slice_in_dim(values, 0, wanted, axis=axis)
    copies = -(-wanted // values.shape[axis])
    return jax.lax.slice_in_dim(jnp.concatenate([values] * copies, axis), 0, wanted, axis=axis)
