"""Acrobot-v1: swing a two-link arm above a line by a motor at its elbow."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.drawing import BLUE, FAINT, GREEN, INK, ORANGE, Canvas
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Discrete

GRAVITY = 9.8
TAU = 0.2  # seconds a step
MAX_SPINS = (4 * pi, 9 * pi)
SPIN_BOUND = np.array(MAX_SPINS)


@dataclass(frozen=True)
class Acrobot(Environment):
    """Swing the tip of a two-link arm above a line; -1 a step until it is there."""

    name = "Acrobot-v1"

    observation_space = Box(
        (-1.0, -1.0, -1.0, -1.0, -MAX_SPINS[0], -MAX_SPINS[1]), (1.0, 1.0, 1.0, 1.0, *MAX_SPINS), (6,)
    )
    action_space = Discrete(3)
    time_limit = 500
    frames_per_second = 15

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
        return state, _observe(state)

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The state is [first angle from hanging, second from the first, both spins]; one RK4 step."""
        torque = (action - 1).astype(state.dtype)
        k1 = _rates(state, torque)
        k2 = _rates(state + TAU / 2 * k1, torque)
        k3 = _rates(state + TAU / 2 * k2, torque)
        k4 = _rates(state + TAU * k3, torque)
        state = state + TAU / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = state[:2] - 2 * pi * jnp.round(state[:2] / (2 * pi))
        state = jnp.concatenate([angles, jnp.clip(state[2:], -SPIN_BOUND, SPIN_BOUND)])
        tip_height = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1])
        terminated = tip_height > 1.0
        return state, _observe(state), terminated.astype(state.dtype) - 1, terminated

    def render(self, state: np.ndarray) -> np.ndarray:
        """Both links, and the line that the tip is to reach."""
        first, second = float(state[0]), float(state[0] + state[1])
        elbow = sin(first), -cos(first)
        tip = elbow[0] + sin(second), elbow[1] - cos(second)
        canvas = Canvas(400, 400, -2.3, 2.3, -2.3)
        canvas.dashes((-2.3, 1), (2.3, 1), GREEN if tip[1] > 1 else FAINT, 2.5)
        canvas.line([(0, 0), elbow], BLUE, 13)
        canvas.line([elbow, tip], ORANGE, 13)
        for joint in ((0.0, 0.0), elbow):
            canvas.disc(joint, 0.1, INK)
        canvas.disc(tip, 0.08, INK)
        return canvas.pixels()


def _rates(state: jax.Array, torque: jax.Array) -> jax.Array:
    """The time derivative of the state.

    Sutton and Barto's equations with their numbers put in: links of mass 1, length 1, centre of mass 1/2 and
    moment of inertia 1. `inertia`, `coupling`, `load_1`, `load_2` are the book's d1, d2, phi1, phi2.
    """
    angle_1, angle_2, spin_1, spin_2 = state
    sin_2, cos_2 = jnp.sin(angle_2), jnp.cos(angle_2)
    inertia = 3.5 + cos_2
    coupling = 1.25 + 0.5 * cos_2
    load_2 = 0.5 * GRAVITY * jnp.sin(angle_1 + angle_2)
    load_1 = 1.5 * GRAVITY * jnp.sin(angle_1) + load_2 - (0.5 * spin_2 + spin_1) * spin_2 * sin_2
    # Both sides of the second equation are multiplied by `inertia`: one division fewer.
    drive_2 = inertia * (torque - 0.5 * spin_1 * spin_1 * sin_2 - load_2) + coupling * load_1
    rate_2 = drive_2 / (1.25 * inertia - coupling * coupling)
    rate_1 = -(coupling * rate_2 + load_1) / inertia
    return jnp.stack([spin_1, spin_2, rate_1, rate_2])


def _observe(state: jax.Array) -> jax.Array:
    cos, sin = jnp.cos(state[:2]), jnp.sin(state[:2])
    return jnp.stack([cos[0], sin[0], cos[1], sin[1], state[2], state[3]])
