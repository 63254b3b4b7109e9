"""Environments made of others: wrappers for environments that are written in JAX.

Gymnasium brings wrappers of its own for what runs on the host. None of these checks that numbers are finite: a compiled
program cannot raise. A number that is not finite reaches the losses and metrics, whose guard ends the run; `motet
check-env` finds it before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadEnvironment, BadOption
from motet.flow.environment import Environment
from motet.flow.spaces import Box, Space, random_index


@dataclass(frozen=True)
class Wrapper(Environment):
    """An environment that is another one, but for what a subclass changes. Equal wrappers of equals are equal."""

    env: Environment

    def __post_init__(self) -> None:
        """Take over what the wrapped environment says of itself, as far as the subclass does not change it."""
        options = [str(getattr(self, each.name)) for each in fields(self) if each.name != "env"]
        title = f"{type(self).__name__}({', '.join(options)})" if options else type(self).__name__
        self._say("name", f"{title} of {self.env.name}")
        self._say("observation_space", self._observations(self.env.observation_space))
        self._say("action_space", self._actions(self.env.action_space))
        self._say("time_limit", self._limit(self.env.time_limit))
        self._say("frames_per_second", self.env.frames_per_second)

    def _say(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def _observations(self, space: Space) -> Space:
        return space

    def _actions(self, space: Space) -> Space:
        return space

    def _limit(self, limit: int | None) -> int | None:
        return limit

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        return self.env.step(state, action, key)

    def render(self, state: Any) -> np.ndarray:
        return self.env.render(self._inside(state))

    def _inside(self, state: Any) -> Any:
        """The wrapped environment's state."""
        return state

    def _box(self, space: Space, what: str) -> Box:
        if not isinstance(space, Box):
            raise BadEnvironment(f"{type(self).__name__} needs Box {what}; those of {self.env.name} are {space}.")
        return space

    def _at_least_one(self, option: str) -> None:
        value = getattr(self, option)
        if value < 1:
            raise BadOption(f"{option} of {type(self).__name__} must be at least 1, got {value}")


@dataclass(frozen=True)
class FrameStack(Wrapper):
    """Observations are the last n of the wrapped environment, [n, ...], the newest last.

    An episode begins with its first observation n times.
    """

    n: int

    def _observations(self, space: Space) -> Space:
        self._at_least_one("n")
        box = self._box(space, "observations")
        low, high = (bound * self.n if isinstance(bound, tuple) else bound for bound in (box.low, box.high))
        return replace(box, low=low, high=high, shape=(self.n, *box.shape))

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, frame = self.env.reset(key)
        frames = jnp.stack([frame] * self.n)
        return (state, frames), frames

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        inner, frames = state
        inner, frame, reward, terminated = self.env.step(inner, action, key)
        frames = jnp.concatenate([frames[1:], frame[None]])
        return (inner, frames), frames, reward, terminated

    def _inside(self, state: Any) -> Any:
        return state[0]


@dataclass(frozen=True)
class FrameDelta(Wrapper):
    """Observations are what changed since the last one; an episode begins with its first observation whole."""

    def _observations(self, space: Space) -> Space:
        box = self._box(space, "observations")
        if not np.issubdtype(box.aval.dtype, np.floating):
            raise BadEnvironment(f"FrameDelta needs numbers with a sign; those of {self.env.name} are {box}.")
        low, high = box.bounds
        return replace(box, low=_bound(np.minimum(low, low - high)), high=_bound(np.maximum(high, high - low)))

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, frame = self.env.reset(key)
        return (state, frame), frame

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        inner, before = state
        inner, frame, reward, terminated = self.env.step(inner, action, key)
        return (inner, frame), frame - before, reward, terminated

    def _inside(self, state: Any) -> Any:
        return state[0]


@dataclass(frozen=True)
class ActionRepeat(Wrapper):
    """Each action is taken n times, or until the episode ends; rewards are summed.

    The wrapped environment's time limit stays exact: what is left of it may be less than n steps.
    """

    n: int

    def _limit(self, limit: int | None) -> int | None:
        self._at_least_one("n")
        return None if limit is None else math.ceil(limit / self.n)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, observation = self.env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), observation

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        inner, length = state  # the length counts the wrapped environment's steps
        limit = self.env.time_limit

        def again(index: jax.Array, before: Any) -> Any:
            inner, length, _, total, ended = before
            inner, observation, reward, terminated = self.env.step(inner, action, jax.random.fold_in(key, index))
            after = (inner, length + 1, observation, total + reward, terminated)
            over = ended if limit is None else ended | (length >= limit)
            return jax.tree.map(lambda old, new: jnp.where(over, old, new), before, after)

        inner, observation, reward, terminated = self.env.step(inner, action, jax.random.fold_in(key, 0))
        once = (inner, length + 1, observation, reward, terminated)
        inner, length, observation, reward, terminated = jax.lax.fori_loop(1, self.n, again, once)
        return (inner, length), observation, reward, terminated

    def _inside(self, state: Any) -> Any:
        return state[0]


@dataclass(frozen=True)
class RandomStart(Wrapper):
    """An episode begins after 0 to `steps` random actions, which count for nothing. One that ends there begins anew,
    without any."""

    steps: int

    def _limit(self, limit: int | None) -> int | None:
        self._at_least_one("steps")
        return limit

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        key_reset, key_count, key_walk, key_again = jax.random.split(key, 4)
        count = random_index(key_count, self.steps + 1)
        again = self.env.reset(key_again)

        def walk(index: jax.Array, before: Any) -> Any:
            state, _, halted = before
            key_act, key_step = jax.random.split(jax.random.fold_in(key_walk, index))
            state, observation, _, terminated = self.env.step(state, self.env.action_space.sample(key_act), key_step)
            after = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), again, (state, observation))
            halted = halted | (index >= count)
            kept = jax.tree.map(lambda old, new: jnp.where(halted, old, new), before[:2], after)
            return *kept, halted | terminated

        start = (*self.env.reset(key_reset), jnp.zeros((), bool))
        state, observation, _ = jax.lax.fori_loop(0, self.steps, walk, start)
        return state, observation


@dataclass(frozen=True)
class ClipAction(Wrapper):
    """Any action is taken, and clipped to the bounds of the wrapped environment."""

    def _actions(self, space: Space) -> Space:
        return replace(self._box(space, "actions"), low=-math.inf, high=math.inf)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        low, high = self._box(self.env.action_space, "actions").bounds
        return self.env.step(state, jnp.clip(action, low, high), key)


@dataclass(frozen=True)
class RangeNormalize(Wrapper):
    """Observations and actions that have two bounds are scaled to [-1, 1], element by element; others stay."""

    def _observations(self, space: Space) -> Space:
        if not (_bounded(space).any() or _bounded(self.env.action_space).any()):
            raise BadEnvironment(f"RangeNormalize finds nothing with two bounds in {self.env.name}.")
        return _scaled(space)

    def _actions(self, space: Space) -> Space:
        return _scaled(space)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, observation = self.env.reset(key)
        return state, self._observed(observation)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        space = self.env.action_space
        if isinstance(space, Box):
            centre, reach = _range(space)
            action = (action * reach + centre).astype(space.aval.dtype)
        state, observation, reward, terminated = self.env.step(state, action, key)
        return state, self._observed(observation), reward, terminated

    def _observed(self, observation: Any) -> Any:
        space = self.env.observation_space
        if not isinstance(space, Box):
            return observation
        centre, reach = _range(space)
        return ((observation - centre) / reach).astype(_scaled(space).aval.dtype)


@dataclass(frozen=True)
class LimitDuration(Wrapper):
    """Episodes are cut off after n steps, if not sooner."""

    n: int

    def _limit(self, limit: int | None) -> int | None:
        self._at_least_one("n")
        return self.n if limit is None else min(self.n, limit)


@dataclass(frozen=True)
class SelectObservation(Wrapper):
    """Only these elements of the observation's last axis are seen.

    SelectObservation(CartPole(), (0, 2)) hides the speeds, which then have to be remembered.
    """

    indices: tuple[int, ...]

    def _observations(self, space: Space) -> Space:
        box = self._box(space, "observations")
        size = box.shape[-1] if box.shape else 0
        if not self.indices or not all(0 <= index < size for index in self.indices):
            raise BadOption(f"indices must name some of the elements 0 to {size - 1}, got {self.indices}")
        low, high = (_bound(bound[..., list(self.indices)]) for bound in box.bounds)
        return replace(box, low=low, high=high, shape=(*box.shape[:-1], len(self.indices)))

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, observation = self.env.reset(key)
        return state, observation[..., np.array(self.indices)]

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        state, observation, reward, terminated = self.env.step(state, action, key)
        return state, observation[..., np.array(self.indices)], reward, terminated


def _bound(array: np.ndarray) -> tuple[float, ...]:
    return tuple(array.ravel().tolist())


def _bounded(space: Space) -> np.ndarray:
    """Which elements have two bounds, in the space's shape."""
    if not isinstance(space, Box):
        return np.zeros((), bool)
    low, high = (np.asarray(bound, np.float64) for bound in space.bounds)
    return np.isfinite(low) & np.isfinite(high) & (high > low)


def _range(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """The centre and half the width of each element that has two bounds; 0 and 1 for the others."""
    low, high = (np.asarray(bound, np.float64) for bound in space.bounds)
    bounded = _bounded(space)
    low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
    float_type = jnp.result_type(float)
    return ((low + high) / 2).astype(float_type), ((high - low) / 2).astype(float_type)


def _scaled(space: Space) -> Space:
    if not isinstance(space, Box):
        return space
    bounded = _bounded(space)
    low, high = space.bounds
    return replace(
        space, low=_bound(np.where(bounded, -1, low)), high=_bound(np.where(bounded, 1, high)), dtype="float"
    )
