"""Catch: move a paddle under a falling ball."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.environment import Environment
from motet.flow.spaces import Box, Discrete

ROWS, COLUMNS = 10, 5
CELLS = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
BOTTOM, LAST = CELLS[-1, 0], CELLS[-1, -1]

# A state is [ball's cell, paddle's cell], so one vector sum moves both: the ball falls a row, and the paddle
# moves by the action less one. The clip keeps the paddle on its row.
MOVE = np.array([COLUMNS, -1], np.int32)
STEER = np.array([0, 1], np.int32)
LOWEST = np.array([0, BOTTOM], np.int32)


@dataclass(frozen=True)
class Catch(Environment):
    """Move a paddle under a falling ball; +1 if it is caught, -1 if it is missed."""

    name = "Catch-v0"

    observation_space = Box(0.0, 1.0, (ROWS, COLUMNS))
    action_space = Discrete(3)

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The ball is in a random column of the top row, the paddle in the middle of the bottom row."""
        ball = jax.random.randint(key, (), 0, COLUMNS, dtype=jnp.int32)
        state = jnp.stack([ball, jnp.int32(BOTTOM + COLUMNS // 2)])
        return state, _observe(state)

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Actions 0, 1, 2 are left, stay, right; the paddle moves before the ball lands."""
        state = jnp.clip(state + MOVE + action * STEER, LOWEST, LAST)
        ball, paddle = state
        terminated = ball >= BOTTOM
        reward = jnp.where(terminated, jnp.where(ball == paddle, 1, -1), 0).astype(jnp.result_type(float))
        return state, _observe(state), reward, terminated


def _observe(state: jax.Array) -> jax.Array:
    """A board [10, 5] with ones at the ball and at the paddle."""
    ball, paddle = state
    return ((ball == CELLS) | (paddle == CELLS)).astype(jnp.result_type(float))
