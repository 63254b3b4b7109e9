"""Uniform replay: every item is as likely to be drawn.

Written by hand: a ring that is cut along the environments must draw the same items in one piece and in many, so
each slot of a batch draws from a fixed block of environments with a key of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from motet.replay.contract import Replay, view_of
from motet.replay.draws import Drawn, draw_bits, uniform_places
from motet.replay.frames import Pictures
from motet.replay.ring import Ring


@dataclass(frozen=True)
class Uniform(Replay):
    """Remember the last `capacity` items (over all environments); every one is as likely to be drawn."""

    def sample(self, state: Ring, key: jax.Array, part: jax.Array, *, slots: int, blocks: int, size: int) -> Drawn:
        here = slots // (size // blocks)
        low, high = self.bounds(jnp, state.written, state.rows, state.pictures, here)
        row, column = uniform_places(jnp, draw_bits(key, part, slots), low, high, state.columns // here)
        return Drawn(self.read(view_of(state), row, column))

    def bounds(self, xp: Any, written: Any, rows: int, pictures: Any, blocks: int) -> tuple[Any, Any]:
        """The first row of each block that may be drawn, and the one after the last, [blocks].

        Where an item is one step, all rows of the ring will do, whatever their numbers.
        """
        zeros = xp.zeros(blocks, xp.int32)
        if self.window == 1 and not isinstance(pictures, Pictures):
            return zeros, zeros + xp.minimum(written, rows)
        low = zeros + xp.maximum(written - rows, 0)
        if isinstance(pictures, Pictures):
            low = xp.maximum(low, xp.max(xp.reshape(pictures.floor, (blocks, -1)), 1))
        return low, zeros + (written - self.window + 1)
