"""Statistics over the whole batch, whatever its sharding.

A node may run in one piece or as several shards of an SPMD program. Inside it, `jnp.mean` would see one shard;
`batch_mean` and `batch_moments` see the batch. The tracer opens a scope around each node, which tells these
functions whether a mesh axis spans the pieces and remembers that the node asked for a statistic at all: a plan
that replicates such a node without a collective must say so (`per_replica`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import jax
import jax.numpy as jnp

SHARDS = "shards"
"""The mesh axis of every sharded fragment."""


@dataclass
class Scope:
    """What surrounds the node being traced."""

    sharded: bool
    used: bool = False


_scope: ContextVar[Scope | None] = ContextVar("motet_batch_scope", default=None)


@contextmanager
def scope(*, sharded: bool) -> Iterator[Scope]:
    """Open the surroundings of one node."""
    current = Scope(sharded)
    token = _scope.set(current)
    try:
        yield current
    finally:
        _scope.reset(token)


def batch_mean(values: jax.Array, axis: int | tuple[int, ...] | None = None) -> jax.Array:
    """The mean over the whole batch. Pieces are of equal size, so the mean of means is the mean."""
    mean = jnp.mean(values, axis)
    current = _scope.get()
    if current is None:
        return mean
    current.used = True
    return jax.lax.pmean(mean, SHARDS) if current.sharded else mean


def batch_moments(values: jax.Array, axis: int | tuple[int, ...] | None = None) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over the whole batch."""
    mean = batch_mean(values, axis)
    centre = mean if axis is None else jnp.expand_dims(mean, axis)
    return mean, batch_mean(jnp.square(values - centre), axis)
