"""Catch: move a paddle under a falling ball."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.drawing import BLUE, GREEN, ORANGE, SHADE, Canvas
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
    frames_per_second = 6

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

    def render(self, state: np.ndarray) -> np.ndarray:
        """The board; the paddle turns green where it has caught the ball."""
        ball, paddle = map(int, state)
        canvas = Canvas(192, 352, -0.5, COLUMNS + 0.5, -0.5)
        for cell in CELLS.flat:
            x, y = _corner(int(cell))
            canvas.box((x + 0.05, y + 0.05), (x + 0.95, y + 0.95), SHADE, 0.12)
        x, y = _corner(paddle)
        canvas.box((x + 0.05, y + 0.05), (x + 0.95, y + 0.42), GREEN if ball == paddle else BLUE, 0.12)
        x, y = _corner(ball)
        canvas.disc((x + 0.5, y + 0.6), 0.3, ORANGE)
        return canvas.pixels()


def _corner(cell: int) -> tuple[float, float]:
    """Where the lower left corner of a cell is."""
    return float(cell % COLUMNS), float(ROWS - 1 - cell // COLUMNS)


def _observe(state: jax.Array) -> jax.Array:
    """A board [10, 5] with ones at the ball and at the paddle."""
    ball, paddle = state
    return ((ball == CELLS) | (paddle == CELLS)).astype(jnp.result_type(float))
