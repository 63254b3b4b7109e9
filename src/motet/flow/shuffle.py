"""Minibatches that are the same rows whatever piece of the environments one holds.

The environments are cut into blocks of `block` neighbours, as few as make T x block rows divide into `count`
minibatches. One permutation of those rows serves every block, so a shard of whole blocks picks from its own rows
exactly what it would contribute to the minibatches of the whole batch. With enough time steps a block is a single
environment, and the permutation is one of time alone.

A policy with a memory learns from sequences, which cannot be taken apart in time. There the environments are cut into
blocks of `count` neighbours, and each minibatch gets one whole sequence of every block; a block's own permutation,
drawn with the block's number, says which.

Rows that were drawn from a replay, [N], are cut into blocks of neighbours like the environments that they were drawn
from, as many blocks as leave each one rows for every minibatch; each block is shuffled by a permutation of its own.
"""

from __future__ import annotations

import math

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


def sequence_blocks(envs: int, count: int) -> int:
    """How many blocks of `count` environments there are."""
    if envs % count:
        raise BadOption(
            f"{envs} environments cannot be cut into {count} equal minibatches of whole sequences; choose a number of "
            f"minibatches that divides {envs}."
        )
    return envs // count


def sequence_permutations(key: jax.Array, blocks: jax.Array, count: int) -> jax.Array:
    """For each of the given block numbers, a shuffle of its environments -> [blocks, count]."""
    keys = jax.vmap(lambda block: jax.random.fold_in(key, block))(blocks)
    return jax.vmap(lambda each: jax.random.permutation(each, count).astype(jnp.int32))(keys)


def select_sequences(position: jax.Array, axis: int, values: jax.Array) -> jax.Array:
    """Of every block, the environment at the block's `position` ([G]); the environments are on `axis`."""
    blocks = position.shape[0]
    count = values.shape[axis] // blocks
    columns = jnp.arange(blocks, dtype=jnp.int32) * count + position
    return jnp.take(values, columns, axis=axis, mode="clip", unique_indices=True)


def item_blocks(rows: int, envs: int, count: int) -> int:
    """Into how many blocks N rows are cut: as many as divide rows and environments and leave whole minibatches."""
    if rows % count:
        raise BadOption(
            f"{rows} rows cannot be cut into {count} equal minibatches; choose a number of minibatches that divides "
            f"{rows}."
        )
    most = math.gcd(rows, envs)
    return max(blocks for blocks in range(1, most + 1) if most % blocks == 0 and rows // blocks % count == 0)


def select_items(position: jax.Array, values: jax.Array) -> jax.Array:
    """Of every block of [N, ...] values, the rows at the block's `position` ([G, R]) -> [G x R, ...]."""
    blocks = position.shape[0]
    cut = values.reshape(blocks, -1, *values.shape[1:])
    picked = jax.vmap(lambda rows, block: block.at[rows].get(mode="promise_in_bounds", unique_indices=True))
    return picked(position, cut).reshape(-1, *values.shape[1:])
