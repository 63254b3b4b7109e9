"""MountainCar-v0 and MountainCarContinuous-v0: rock a weak car out of a valley."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.drawing import BLUE, FAINT, GREEN, INK, ORANGE, Canvas, turned
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Discrete

GRAVITY = 0.0025
MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
OBSERVATION = Box((MIN_POSITION, -MAX_SPEED), (MAX_POSITION, MAX_SPEED), (2,))
RESET_LOW, RESET_HIGH = np.array([-0.6, 0.0]), np.array([-0.4, 0.0])


@dataclass(frozen=True)
class MountainCar(Environment):
    """Rock a car out of a valley by pushing left, not at all or right; -1 a step until the flag."""

    name = "MountainCar-v0"

    observation_space = OBSERVATION
    action_space = Discrete(3)
    time_limit = 200

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _start(key)

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The state, and the observation, is [position, velocity]."""
        position, velocity = _drive(state, 0.001 * (action - 1))
        terminated = (position >= 0.5) & (velocity >= 0)
        state = jnp.stack([position, velocity])
        return state, state, -jnp.ones(()), terminated

    def render(self, state: np.ndarray) -> np.ndarray:
        return _picture(state, 0.5)


@dataclass(frozen=True)
class MountainCarContinuous(Environment):
    """Rock a car out of a valley by a force in [-1, 1]; +100 at the flag, less the force squared."""

    name = "MountainCarContinuous-v0"

    observation_space = OBSERVATION
    action_space = Box(-1.0, 1.0, (1,))
    time_limit = 999

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _start(key)

    def step(
        self, state: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The state, and the observation, is [position, velocity]."""
        force = action[0]
        position, velocity = _drive(state, 0.0015 * jnp.clip(force, -1.0, 1.0))
        terminated = (position >= 0.45) & (velocity >= 0)
        state = jnp.stack([position, velocity])
        # As in Gymnasium, the car feels the clipped force but pays for the one asked for.
        reward = 100 * terminated.astype(state.dtype) - 0.1 * force * force
        return state, state, reward, terminated

    def render(self, state: np.ndarray) -> np.ndarray:
        return _picture(state, 0.45)


def _start(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    state = jax.random.uniform(key, (2,), minval=RESET_LOW, maxval=RESET_HIGH)
    return state, state


def _drive(state: jax.Array, push: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Position and velocity after one step; the left wall stops the car, the right one only its position."""
    position, velocity = state
    velocity = jnp.clip(velocity + push - GRAVITY * jnp.cos(3 * position), -MAX_SPEED, MAX_SPEED)
    position = position + velocity
    velocity = jnp.where(position <= MIN_POSITION, jnp.maximum(velocity, 0), velocity)
    return jnp.clip(position, MIN_POSITION, MAX_POSITION), velocity


def _height(position: float) -> float:
    return 0.45 * float(np.sin(3 * position)) + 0.55


def _picture(state: np.ndarray, flag: float) -> np.ndarray:
    """The valley, the car, and the flag it is to reach."""
    place = float(state[0])
    canvas = Canvas(480, 320, -1.25, 0.65, -0.02)
    hills = [(x, _height(x)) for x in np.linspace(-1.3, 0.7, 120).tolist()]
    canvas.shape([(-1.3, -1), *hills, (0.7, -1)], FAINT)
    canvas.line(hills, INK, 2.5)
    foot = flag, _height(flag)
    canvas.line([foot, (flag, foot[1] + 0.17)], INK, 2.5)
    canvas.shape([(flag, foot[1] + 0.17), (flag + 0.09, foot[1] + 0.135), (flag, foot[1] + 0.1)], GREEN)
    slope = float(np.arctan(1.35 * np.cos(3 * place)))
    car = place, _height(place)
    body = [
        (-0.065, 0.03),
        (0.065, 0.03),
        (0.065, 0.06),
        (0.03, 0.065),
        (0.015, 0.095),
        (-0.035, 0.095),
        (-0.05, 0.065),
    ]
    canvas.shape(turned([*body, (-0.065, 0.06)], slope, car), ORANGE)
    for wheel in turned([(-0.038, 0.027), (0.038, 0.027)], slope, car):
        canvas.disc(wheel, 0.022, INK)
        canvas.disc(wheel, 0.009, BLUE)
    return canvas.pixels()
