"""Pendulum-v1: swing a pendulum up and hold it there with a weak motor."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.drawing import FAINT, INK, ORANGE, SHADE, Canvas
from motet.flow.environment import Environment
from motet.flow.spaces import Box

MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TAU = 0.05  # seconds a step
RESET_BOUND = np.array([pi, 1.0])


@dataclass(frozen=True)
class Pendulum(Environment):
    """Swing a pendulum up with a weak motor; the cost is its angle, its speed and the torque, squared."""

    name = "Pendulum-v1"

    g: float = 10.0
    """Gravity; the rod has length 1 and mass 1."""

    observation_space = Box((-1.0, -1.0, -MAX_SPEED), (1.0, 1.0, MAX_SPEED), (3,))
    action_space = Box(-MAX_TORQUE, MAX_TORQUE, (1,))
    time_limit = 200

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.random.uniform(key, (2,), minval=-RESET_BOUND, maxval=RESET_BOUND)
        return state, _observe(state[0], state[1])

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The state is [angle from upright, speed]; the angle counts whole turns, the cost does not."""
        angle, speed = state
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        within_turn = angle - 2 * pi * jnp.floor((angle + pi) / (2 * pi))  # in [-pi, pi)
        cost = within_turn * within_turn + 0.1 * speed * speed + 0.001 * torque * torque
        rate = 1.5 * self.g * jnp.sin(angle) + 3 * torque
        speed = jnp.clip(speed + TAU * rate, -MAX_SPEED, MAX_SPEED)
        angle = angle + TAU * speed
        return jnp.stack([angle, speed]), _observe(angle, speed), -cost, jnp.zeros((), bool)

    def render(self, state: np.ndarray) -> np.ndarray:
        """The rod, the circle of its end, and upright."""
        angle = float(state[0])
        end = -sin(angle), cos(angle)  # an angle above 0 is to the left of upright
        canvas = Canvas(400, 400, -1.35, 1.35, -1.35)
        canvas.disc((0, 0), 1.0, SHADE)
        canvas.disc((0, 0), 0.985, "#f8fafc")
        canvas.dashes((0, 0), (0, 1), FAINT, 2, 12)
        canvas.line([(0, 0), end], ORANGE, 22)
        canvas.disc(end, 0.12, INK)
        canvas.disc((0, 0), 0.06, INK)
        return canvas.pixels()


def _observe(angle: jax.Array, speed: jax.Array) -> jax.Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])
