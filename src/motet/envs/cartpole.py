"""CartPole-v1: balance a pole on a cart by pushing the cart left or right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.drawing import BLUE, FAINT, INK, ORANGE, Canvas
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Discrete

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
HALF_LENGTH = 0.5
FORCE = 10.0
TAU = 0.02  # seconds a step
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12)

# The constants of the equations of motion, folded here so that a step multiplies and never divides by them.
MASS = CART_MASS + POLE_MASS
PUSH = FORCE / MASS
ARM = POLE_MASS * HALF_LENGTH / MASS
INERTIA = HALF_LENGTH * 4 / 3

HIGH = (2 * MAX_POSITION, math.inf, 2 * MAX_ANGLE, math.inf)
LOW = tuple(-bound for bound in HIGH)


@dataclass(frozen=True)
class CartPole(Environment):
    """Balance a pole on a cart; +1 a step until the pole falls or the cart leaves the track."""

    name = "CartPole-v1"

    observation_space = Box(LOW, HIGH, (4,))
    action_space = Discrete(2)
    time_limit = 500
    frames_per_second = 50

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, state

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The state, and the observation, is [position, speed, angle, angular speed]; one Euler step."""
        _, speed, angle, spin = state
        sin, cos = jnp.sin(angle), jnp.cos(angle)
        push = jnp.where(action == 1, PUSH, -PUSH) + ARM * spin * spin * sin
        spin_rate = (GRAVITY * sin - cos * push) / (INERTIA - ARM * cos * cos)
        speed_rate = push - ARM * spin_rate * cos
        state = state + TAU * jnp.stack([speed, speed_rate, spin, spin_rate])
        terminated = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
        return state, state, jnp.ones(()), terminated

    def render(self, state: np.ndarray) -> np.ndarray:
        """The cart on its track, the pole, and how far it may lean."""
        place, _, angle, _ = map(float, state)
        canvas = Canvas(480, 256, -2.7, 2.7, -0.8)
        canvas.line([(-2.7, 0), (2.7, 0)], FAINT, 3)
        for end in (-MAX_POSITION, MAX_POSITION):
            canvas.line([(end, -0.12), (end, 0.12)], FAINT, 3)
        axle = place, 0.34
        for leaning in (-MAX_ANGLE, MAX_ANGLE):
            canvas.dashes(axle, (place + 1.45 * math.sin(leaning), 0.34 + 1.45 * math.cos(leaning)), FAINT, 1.2)
        canvas.box((place - 0.32, 0.1), (place + 0.32, 0.42), INK, 0.06)
        for side in (-0.19, 0.19):
            canvas.disc((place + side, 0.1), 0.09, INK)
            canvas.disc((place + side, 0.1), 0.04, FAINT)
        length = 4 * HALF_LENGTH * 0.65  # longer than it is, so that it is seen to lean
        canvas.line([axle, (place + length * math.sin(angle), 0.34 + length * math.cos(angle))], ORANGE, 9)
        canvas.disc(axle, 0.06, BLUE)
        return canvas.pixels()
