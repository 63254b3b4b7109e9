"""Random numbers whose hash is one operation.

JAX makes Threefry a loop on CPUs, of several operations a round: ten hashes took a third of an iteration that learned
from a replay. Here it is written out. The numbers are the same.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit  # traced and lowered once for each shape, not once for each hash
def threefry(key1: Any, key2: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011).

    In the operations of `lax`: those of `jax.numpy` give the same program, but take twice as long to trace, and there
    are a hundred and fifty in a hash.
    """
    key1, key2, x, y = jnp.broadcast_arrays(key1, key2, x, y)
    number = functools.cache(lambda value: lax.full_like(x, value))
    keys = (key1, key2, lax.bitwise_xor(lax.bitwise_xor(key1, key2), number(0x1BD11BDA)))
    x, y = lax.add(x, keys[0]), lax.add(y, keys[1])
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = lax.add(x, y)
            left, right = lax.shift_left(y, number(distance)), lax.shift_right_logical(y, number(32 - distance))
            y = lax.bitwise_xor(lax.bitwise_or(left, right), x)
        x = lax.add(x, keys[(group + 1) % 3])
        y = lax.add(lax.add(y, keys[(group + 2) % 3]), number(group + 1))
    return x, y
