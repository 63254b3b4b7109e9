"""Wrappers for Gymnasium environments that Gymnasium does not have. They run where the environment runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation, TimeLimit

from motet.errors import BadEnvironment, BadOption


class ActionRepeat(gymnasium.Wrapper):
    """Makes each action n steps long and sums their rewards; an episode's end cuts it short."""

    def __init__(self, env: gymnasium.Env, n: int):
        super().__init__(env)
        if n < 1:
            raise BadOption(f"An action must be repeated at least once, not {n} times.")
        self.n = n

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        total, steps = float(reward), 1
        while steps < self.n and not (terminated or truncated):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total, steps = total + float(reward), steps + 1
        return observation, total, terminated, truncated, info


class RandomStart(gymnasium.Wrapper):
    """An episode begins after 0 to `steps` random actions, which count for nothing. One that ends there begins anew,
    without any.

    How many is drawn from the environment's own generator and the actions from its action space, so both follow from
    its seed.
    """

    def __init__(self, env: gymnasium.Env, steps: int):
        super().__init__(env)
        if steps < 1:
            raise BadOption(f"steps of RandomStart must be at least 1, got {steps}")
        self.steps = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self.env.action_space.seed(seed)
        for _ in range(int(self.env.unwrapped.np_random.integers(self.steps + 1))):
            observation, _, terminated, truncated, info = self.env.step(self.env.action_space.sample())
            if terminated or truncated:
                return self.env.reset(options=options)
        return observation, info


class FrameDelta(gymnasium.Wrapper):
    """Observations are what changed since the last one; an episode begins with its first observation whole."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise BadEnvironment(f"FrameDelta needs observations in a Box, but they are in {space}.")
        # The difference of two bytes needs a sign and another bit.
        dtype = np.result_type(space.dtype, np.int16) if space.dtype.kind in "iub" else space.dtype
        low, high = space.low.astype(dtype), space.high.astype(dtype)
        self._dtype = dtype
        smallest, largest = np.minimum(low, low - high), np.maximum(high, high - low)
        self.observation_space = gymnasium.spaces.Box(smallest, largest, dtype=dtype.type)
        self._last = np.zeros(space.shape, dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._last = np.array(observation, self._dtype)
        return self._last.copy(), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        before, self._last = self._last, np.array(observation, self._dtype)
        return self._last - before, reward, terminated, truncated, info


@dataclass(frozen=True)
class Wrapped:
    """Makes an environment with wrappers around it, wherever it runs. `motet.envs.wrapping` says which there are."""

    make: Callable[[], Any]
    wrappers: tuple[tuple[str, int], ...]
    """Names and numbers, the innermost first."""

    def __call__(self) -> Any:
        kinds = {"time_limit": TimeLimit, "action_repeat": ActionRepeat, "frame_stack": FrameStackObservation}
        env = self.make()
        for name, value in self.wrappers:
            env = kinds[name](env, value)
        return env
