"""Environments of gymnax, which are written in JAX: `gymnax/CartPole-v1`.

gymnax has two APIs. Until 0.0.9 the `done` of a step mixes the task's end with the time limit; since 1.0 they are told
apart, but only in a `step` that resets by itself. Both have the functions of one episode, `reset_env` and `step_env`,
and these are used here: motet resets, and counts the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.envs.families import library
from motet.envs.steady import as_types, steady_types
from motet.errors import BadEnvironment, UnknownName
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Dict, Discrete, Space, Tuple

NEVER = 2**31 - 1


def ids() -> list[str]:
    return list(library("gymnax").registered_envs)


@dataclass(frozen=True)
class Gymnax(Environment):
    """One of gymnax's environments, with its default parameters."""

    id: str
    """As in gymnax.registered_envs."""
    _env: Any = field(init=False, repr=False, compare=False)
    _params: Any = field(init=False, repr=False, compare=False)
    _endless: Any = field(init=False, repr=False, compare=False)
    """The parameters with a time limit that is never reached."""
    _types: Any = field(init=False, repr=False, compare=False)
    """Of the state."""

    def __post_init__(self) -> None:
        known = ids()
        if self.id not in known:
            raise UnknownName("gymnax environment", self.id, known)
        env, params = library("gymnax").make(self.id)
        limit = params.max_steps_in_episode
        name = f"gymnax/{self.id}"
        values = {
            "_env": env,
            "_params": params,
            "_endless": params.replace(max_steps_in_episode=type(limit)(NEVER)),
            "name": name,
            "observation_space": space_of(env.observation_space(params)),
            "action_space": space_of(env.action_space(params)),
            "time_limit": int(limit),
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)
        types = steady_types(
            lambda key: env.reset_env(key, params)[1],
            lambda state, action, key: env.step_env(key, state, action, params)[1],
            self.action_space.aval,
        )
        object.__setattr__(self, "_types", types)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        observation, state = self._env.reset_env(key, self._params)
        return as_types(state, self._types), self._observed(observation)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        """One step without a time limit; of `done` only the task's end is left.

        An observation may show how much of the time is left, so it is taken from a step with the limit. XLA computes
        what both have in common once.
        """
        observation = self._env.step_env(key, state, action, self._params)[0]
        _, state, reward, terminated, _ = self._env.step_env(key, state, action, self._endless)
        reward = jnp.asarray(reward, jnp.result_type(float)).reshape(())
        return as_types(state, self._types), self._observed(observation), reward, jnp.asarray(terminated, bool)

    def _observed(self, observation: Any) -> Any:
        return as_types(observation, self.observation_space.aval)


def space_of(space: Any) -> Space:
    """The motet space of the same values. gymnax's are told by their names: there is no need to import them."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        return _box(space)
    if kind == "Dict":
        return Dict({name: space_of(part) for name, part in space.spaces.items()})
    if kind == "Tuple":
        return Tuple(tuple(space_of(part) for part in space.spaces))
    raise BadEnvironment(f"A gymnax space should be a Discrete, Box, Dict or Tuple, but one is a {kind}: {space}.")


def _box(space: Any) -> Box:
    """The largest float stands for no bound, and floats are JAX's own."""
    dtype, shape = np.dtype(space.dtype), tuple(space.shape)
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), shape) for bound in (space.low, space.high))
    if dtype.kind == "f":
        limit = np.finfo(np.float32).max
        low, high = np.where(low <= -limit, -np.inf, low), np.where(high >= limit, np.inf, high)
    return Box(_bound(low), _bound(high), shape, "float" if dtype.kind == "f" else dtype.name)


def _bound(array: np.ndarray) -> float | tuple[float, ...]:
    """One number where it is the same everywhere."""
    values = array.ravel().tolist()
    return values[0] if len(set(values)) == 1 else tuple(values)
