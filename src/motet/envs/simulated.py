"""Environments of JAX whose state holds what was observed, the reward and the end: those of Brax, and of MuJoCo
Playground after it.

Their own wrappers for training are left out: motet maps over environments, resets them and counts the time. What is
left says `done` only where the task is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from motet.envs.steady import as_types, steady_types
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Dict, Space

INFINITE = float("inf")


@dataclass(frozen=True)
class Simulated(Environment):
    """One of them, which a subclass finds by its id. Actions are in [-1, 1]."""

    id: str
    _env: Any = field(init=False, repr=False, compare=False)
    _types: Any = field(init=False, repr=False, compare=False)
    """Of the state."""

    def adopt(self, env: Any, name: str, time_limit: int) -> None:
        """Be `env`: say what it says of itself."""
        self._set("_env", env)
        self._set("name", name)
        self._set("time_limit", time_limit)
        self._set("action_space", Box(-1.0, 1.0, (env.action_size,)))
        with jax.numpy_rank_promotion("allow"):
            types = steady_types(env.reset, lambda state, action, _: env.step(state, action), self.action_space.aval)
        self._set("_types", types)
        self._set("observation_space", _space(types.obs))

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        with jax.numpy_rank_promotion("allow"):  # They count on it.
            state = as_types(self._env.reset(key), self._types)
        return state, self._observed(state)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        """What is random in a step comes of a key in the state."""
        with jax.numpy_rank_promotion("allow"):
            state = as_types(self._env.step(state, action), self._types)
        return state, self._observed(state), state.reward.astype(jnp.result_type(float)), state.done > 0

    def _observed(self, state: Any) -> Any:
        return jax.tree.map(lambda leaf, aval: leaf.astype(aval.dtype), _plain(state.obs), self.observation_space.aval)


def _plain(observation: Any) -> Any:
    """Whatever mapping it is, as a dictionary."""
    return observation if hasattr(observation, "shape") else {name: _plain(part) for name, part in observation.items()}


def _space(observation: Any) -> Space:
    """Numbers without bounds, in the observation's structure."""
    if hasattr(observation, "shape"):
        return Box(-INFINITE, INFINITE, tuple(observation.shape))
    return Dict({name: _space(part) for name, part in observation.items()})
