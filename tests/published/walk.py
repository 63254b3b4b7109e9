"""A task that is quick to compile and to learn from: keep a point near the middle of a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import motet


@dataclass(frozen=True)
class Walk(motet.Environment):
    """The point drifts and is pushed left or right; it is lost beyond 1. What is seen is where it is and was."""

    observation_space: motet.Box = motet.Box(-2, 2, (2,))
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = 9

    def reset(self, key: jax.Array) -> Any:
        place = jax.random.uniform(key, (), minval=-0.5, maxval=0.5)
        return jnp.stack([place, place]), jnp.stack([place, place])

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        push = 0.2 * (2 * action - 1) + 0.1 * jax.random.normal(key)
        after = jnp.stack([1.2 * state[0] + push, state[0]])
        return after, after, 1 - after[0] ** 2, jnp.abs(after[0]) > 1
