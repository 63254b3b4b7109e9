"""Minibatches that are the same rows whatever piece of the environments one holds.

The environments are cut into blocks of `block` neighbours, as few as make T x block rows divide into `count`
minibatches. One permutation of those rows serves every block, so a shard of whole blocks picks from its own rows
exactly what it would contribute to the minibatches of the whole batch. With enough time steps a block is a single
environment, and the permutation is one of time alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from motet.errors import BadOption


def block_size(time: int, envs: int, count: int) -> int:
    """The smallest number of environments, dividing all of them, whose rows divide into `count` minibatches."""
    for size in range(1, envs + 1):
        if envs % size == 0 and (time * size) % count == 0:
            return size
    raise BadOption(
        f"{time} steps x {envs} environments = {time * envs} rows cannot be cut into {count} equal minibatches; "
        f"choose a number of minibatches that divides {time * envs}."
    )


def permutation(key: jax.Array, rows: int, count: int) -> jax.Array:
    """A shuffle of a block's rows -> [count, rows / count]."""
    return jax.random.permutation(key, rows).astype(jnp.int32).reshape(count, -1)


def select(rows: jax.Array, block: int, values: jax.Array) -> jax.Array:
    """The given rows of every block of [T, B, ...] values -> [N, ...]."""
    time, envs, *rest = values.shape
    if block > 1:  # [T, G, block] -> [T x block, G]
        values = values.reshape(time, envs // block, block, *rest).swapaxes(1, 2)
        values = values.reshape(time * block, envs // block, *rest)
    picked = values.at[rows].get(mode="promise_in_bounds", unique_indices=True)
    return picked.reshape(-1, *rest)
