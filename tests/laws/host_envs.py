"""Gymnasium environments for the laws. Worker processes import this file, so it must not import JAX."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np

NAMES, LIMIT = 256, 3


class Numbered(gymnasium.Env[np.ndarray, np.int64]):
    """Each step of each episode has a number: that of the episode's name, and how many steps were before it. It is
    the observation before the step, and the reward."""

    observation_space = gymnasium.spaces.Box(0, 1e9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit: int = LIMIT):
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.name, self.count = int(self.np_random.integers(NAMES)), 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = float(self._number())
        self.count += 1
        return self._observation(), reward, False, self.count >= self.limit, {}

    def _observation(self) -> np.ndarray:
        return np.asarray([self._number()], np.float32)

    def _number(self) -> int:
        return self.name * LIMIT + self.count


class Slow(Numbered):
    """Takes its time, and not always the same."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(0.001 + 0.004 * self.name / NAMES)
        return super().step(action)


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """Pays 1 a step and never ends by itself; after `limit` steps it is cut off, or after `ends` it terminates."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit: int = 4, ends: int = 1000):
        self.limit, self.ends = limit, ends

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count = 0
        return np.asarray([1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        over = self.count >= self.limit, self.count >= self.ends
        return np.asarray([0, self.count / self.limit], np.float32), 1.0, over[1], over[0] and not over[1], {}


class Mortal(Numbered):
    """Kills its own process at its fifth step, unless it has done so before: then the mark is there."""

    def __init__(self, mark: str):
        super().__init__()
        self.mark, self.steps = mark, 0

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        if self.steps == 5:
            with contextlib.suppress(FileExistsError):  # of all workers, one is the first
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Failing(Numbered):
    """Raises an error of its own at step 37."""

    def __init__(self) -> None:
        super().__init__(limit=1000)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.count == 36:
            raise ZeroDivisionError("the simulator broke")
        return super().step(action)


class Hanging(Numbered):
    """Comes back from its tenth step much too late."""

    def __init__(self, seconds: float = 5.0) -> None:
        super().__init__(limit=1000)
        self.seconds = seconds

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.count == 9:
            time.sleep(self.seconds)
        return super().step(action)
