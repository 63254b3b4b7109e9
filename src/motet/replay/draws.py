"""What a draw is made from and what it gives, the same wherever a replay lies."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.values import Drawn

__all__ = ["Drawn", "draw_bits", "shares", "uniform_places"]


def draw_bits(key: jax.Array, part: jax.Array | int, slots: int) -> jax.Array:
    """The random bits uint32 [slots] of a piece's slots of a batch: each slot has a key of its own."""
    keys = jax.vmap(partial(jax.random.fold_in, key))(part * slots + jnp.arange(slots))
    return jax.vmap(partial(jax.random.bits, dtype=jnp.uint32))(keys)


def uniform_places(xp: Any, bits: Any, low: Any, high: Any, columns: int) -> tuple[Any, Any]:
    """Rows and columns [N] for slots that are cut into blocks like the environments.

    A slot draws from the `columns` of its own block, from the rows `low` to `high` - 1, both [blocks].
    """
    slots, blocks = bits.shape[0], low.shape[0]
    block = xp.arange(slots, dtype=np.int32) // (slots // blocks)
    count = xp.maximum(high - low, 1) * columns  # never 0, which JAX's own remainder would look for
    draw = _remainder(xp, bits, count.astype(np.uint32)[block]).astype(np.int32)
    if columns == 1:
        return low[block] + draw, block
    return low[block] + draw // columns, block * columns + draw % columns


def _remainder(xp: Any, a: Any, b: Any) -> Any:
    return a % b if xp is np else jax.lax.rem(a, b)


def shares(xp: Any, bits: Any) -> Any:
    """Stratified shares of the whole: slot j of N gets one from [j/N, (j+1)/N], float32."""
    slots = bits.shape[0]
    inside = (bits >> 8).astype(np.float32) * np.float32(2.0**-24)
    # The minimum also keeps compilers from moving the factor behind the multiplication that follows.
    return xp.minimum((xp.arange(slots).astype(np.float32) + inside) * np.float32(1 / slots), np.float32(1))
