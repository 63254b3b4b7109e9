"""CartPole-v1: balance a pole on a cart by pushing the cart left or right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

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
