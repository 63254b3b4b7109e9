"""Environments of Brax, robots simulated in JAX: `brax/ant`.

Brax's own wrappers for training are left out: motet maps over environments, resets them and counts the time. What is
left says `done` only where the robot fell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from motet.envs.families import library
from motet.envs.steady import as_types, steady_types
from motet.errors import UnknownName
from motet.flow.environment import Environment
from motet.flow.spaces import Box

EPISODE_LENGTH = 1000
"""Brax leaves it to whoever trains; all of its own training scripts take this."""

INFINITE = float("inf")


def ids() -> list[str]:
    return sorted(library("brax", "brax.envs")._envs)


@dataclass(frozen=True)
class Brax(Environment):
    """One of Brax's environments, with its default parameters. Actions are in [-1, 1]."""

    id: str
    """As in brax.envs.get_environment."""
    backend: str | None = None
    """How contacts and joints are computed: generalized, spring, positional or mjx; None: as the environment says."""
    _env: Any = field(init=False, repr=False, compare=False)
    _types: Any = field(init=False, repr=False, compare=False)
    """Of the state."""

    def __post_init__(self) -> None:
        envs = library("brax", "brax.envs")
        if self.id not in envs._envs:
            raise UnknownName("brax environment", self.id, ids())
        options = {} if self.backend is None else {"backend": self.backend}
        env = envs.get_environment(self.id, **options)
        self._set("_env", env)
        self._set("name", f"brax/{self.id}" + (f" ({self.backend})" if self.backend else ""))
        self._set("time_limit", EPISODE_LENGTH)
        self._set("action_space", Box(-1.0, 1.0, (env.action_size,)))
        with jax.numpy_rank_promotion("allow"):
            types = steady_types(env.reset, lambda state, action, _: env.step(state, action), self.action_space.aval)
        self._set("_types", types)
        self._set("observation_space", Box(-INFINITE, INFINITE, types.obs.shape))

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with jax.numpy_rank_promotion("allow"):  # Brax counts on it.
            state = as_types(self._env.reset(key), self._types)
        return state, self._observed(state)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        """Nothing in a step is random."""
        with jax.numpy_rank_promotion("allow"):
            state = as_types(self._env.step(state, action), self._types)
        return state, self._observed(state), state.reward.astype(jnp.result_type(float)), state.done > 0

    def _observed(self, state: Any) -> jax.Array:
        return state.obs.astype(self.observation_space.aval.dtype)
