"""Uniform replay: a ring of time steps on the device, one column for each environment.

Written by hand: a ring that is cut along the environments must draw the same items in one piece and in many, so
each slot of a batch draws from a fixed block of environments with a key of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadOption
from motet.flow.spaces import random_index


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ring:
    """Remembered items of B environments."""

    items: Any  # [C, B, ...]
    position: jax.Array  # [] the row that is written next
    size: jax.Array  # [] rows that are filled


@dataclass(frozen=True)
class Uniform:
    """Remember the last `capacity` items (over all environments); every one is as likely to be drawn."""

    capacity: int

    def init(self, example: Any, num_envs: int) -> Ring:
        """An empty ring for [T, B, ...] additions. Rows are a multiple of T, so that no addition wraps around."""
        time = jax.tree.leaves(example)[0].shape[0]
        rows = self.capacity // num_envs // time * time
        if rows < 1:
            raise BadOption(
                f"The replay holds {self.capacity} items, but one addition is {time} steps x {num_envs} environments; "
                f"give it a capacity of at least {time * num_envs}."
            )
        items = jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape[1:]), leaf.dtype), example)
        return Ring(items, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def add(self, ring: Ring, new: Any) -> Ring:
        """Write [T, B, ...] items over the oldest ones."""
        time = jax.tree.leaves(new)[0].shape[0]
        rows = jax.tree.leaves(ring.items)[0].shape[0]
        items = jax.tree.map(
            lambda old, leaf: jax.lax.dynamic_update_slice_in_dim(old, leaf.astype(old.dtype), ring.position, 0),
            ring.items,
            new,
        )
        return Ring(items, (ring.position + time) % rows, jnp.minimum(ring.size + time, rows))

    def sample(self, ring: Ring, key: jax.Array, part: jax.Array, *, slots: int, blocks: int, size: int) -> Any:
        """Draw this piece's `slots` of a batch of `size` -> [slots, ...].

        The batch's slots and the environments are cut into `blocks` alike; a slot draws from its own block.
        """
        per_block = size // blocks
        envs = jax.tree.leaves(ring.items)[0].shape[1] // (slots // per_block)
        keys = jax.vmap(partial(jax.random.fold_in, key))(part * slots + jnp.arange(slots))
        draw = jax.vmap(lambda each: random_index(each, ring.size * envs))(keys)
        column = jnp.arange(slots, dtype=jnp.int32) // per_block * envs + draw % envs
        return jax.tree.map(lambda leaf: leaf.at[draw // envs, column].get(mode="promise_in_bounds"), ring.items)
