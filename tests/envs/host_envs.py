"""Small Gymnasium environments, good and bad. Workers import this file, so it must not import JAX."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple


class Counter(gymnasium.Env):
    """Counts its steps, with a little noise; an episode has `length` steps, of which the last truncates."""

    def __init__(self, length: int = 5):
        self.observation_space = Box(-1.0, 1e6, (3,), np.float32)
        self.action_space = Discrete(2)
        self.length, self.count = length, 0

    def look(self) -> Any:
        return np.array([self.count, self.np_random.random(), os.getpid()], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.look(), float(self.count), False, self.count == self.length, {}


class Noisy(Counter):
    """The same in every process; ends at random, either way. Its observation is one array that it reuses."""

    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros(3, np.float32)

    def look(self) -> Any:
        self.array[:] = self.count, *self.np_random.random(2)
        return self.array

    def step(self, action: Any) -> Any:
        self.count += 1
        end = self.np_random.random(2) < 0.1
        return self.look(), float(action) + self.count, bool(end[0]), bool(end[1]), {}


class Fresh(Noisy):
    """The same with a new array each time: Gymnasium's vector environments do not copy an episode's last one."""

    def look(self) -> Any:
        return super().look().copy()


class Nested(gymnasium.Env):
    """Every kind of space at once. The observation repeats the action that came."""

    def __init__(self) -> None:
        self.action_space = Dict(
            {
                "turn": Discrete(3, start=-1),
                "arm": Tuple((Box(-2.0, 2.0, (2,), np.float64), MultiBinary(3))),
                "keys": MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
            }
        )
        self.observation_space = Dict(
            {"last": self.action_space, "image": Box(0, 255, (2, 2), np.uint8), "count": Discrete(100, start=5)}
        )
        self.seen: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 5
        return self.look({name: space.sample() for name, space in self.action_space.spaces.items()}), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.count += 1
        return self.look(action), 0.0, False, False, {}

    def look(self, action: Any) -> Any:
        image = self.np_random.integers(0, 256, (2, 2), np.uint8)
        return {"image": image, "last": action, "count": np.int64(self.count)}


class Pointed(gymnasium.Env):
    """Its reward is the action that came, which must be inside of the bounds."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = Box(np.array([-1.0, 0.0]), np.array([1.0, 3.0]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        assert action.dtype == np.float64 and self.action_space.contains(action)
        return np.zeros(1), 10 * action[0] + action[1], False, False, {}


class Bad(Counter):
    """Does one thing wrong, in reset or in a step of its first episode."""

    def __init__(self, wrong: str, at: int = 37):
        super().__init__(length=100)
        self.wrong, self.at = wrong, at
        if wrong == "other space" and os.environ.get("MOTET_TEST_OTHER_SPACE"):
            self.observation_space = Box(-1.0, 1e6, (4,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.spoil(self.look(), 0), {}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        now = self.count == self.at
        if self.wrong == "reward" and now:
            reward = float("nan")
        if self.wrong == "flag" and now:
            terminated = 0
        observation = self.spoil(observation, self.count)
        return (observation, reward, terminated, info) if self.wrong == "four" and now else (
            observation, reward, terminated, truncated, info
        )  # fmt: skip

    def spoil(self, observation: Any, count: int) -> Any:
        if count != self.at:
            return observation
        if self.wrong == "raise":
            raise KeyError("the lid is off")
        if self.wrong == "hang":
            time.sleep(1000)
        if self.wrong == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        bad = {
            "nan": np.array([1, np.nan, 0], np.float32),
            "inf": np.array([1, 0, np.inf]),
            "shape": np.zeros(4, np.float32),
            "scalar": np.float32(0),
            "dtype": np.array(["a", "b", "c"]),
            "complex": np.zeros(3, np.complex64),
            "outside": np.array([0, -1.5, 0], np.float32),
            "none": None,
        }
        return bad.get(self.wrong, observation)


def dies_while_starting() -> gymnasium.Env:
    """Only in a worker: the pool asks one for its spaces first."""
    if in_worker():
        os.kill(os.getpid(), signal.SIGTERM)
    return Counter()


def hangs_while_starting() -> gymnasium.Env:
    if in_worker():
        time.sleep(1000)
    return Counter()


def raises_while_starting() -> gymnasium.Env:
    if in_worker():
        raise OSError("no display")
    return Counter()


def another_space_in_workers() -> gymnasium.Env:
    env = Counter()
    if in_worker():
        env.observation_space = Box(-1.0, 1e6, (4,), np.float32)
    return env


def in_worker() -> bool:
    return bool(getattr(sys.modules["__main__"], "__spec__", None)) and (
        sys.modules["__main__"].__spec__.name == "motet.envs.child"  # type: ignore[union-attr]
    )


class Spy(Counter):
    """Its observation tells what is loaded in its process."""

    def look(self) -> Any:
        worker, jax = in_worker(), "jax" in sys.modules
        threads = os.environ.get("OMP_NUM_THREADS") == "1"
        return np.array([worker, jax, threads], np.float32)


class Chatty(Counter):
    """Prints at every step, to both streams."""

    def step(self, action: Any) -> Any:
        print("x" * 1000)
        print("y" * 1000, file=sys.stderr)
        return super().step(action)


class Closing(Counter):
    """Leaves a file when it is closed."""

    def __init__(self, folder: str):
        super().__init__()
        self.folder = folder

    def close(self) -> None:
        if in_worker():
            Path(self.folder, f"{os.getpid()}-{id(self)}").touch()


class Sleepy(Counter):
    """Sleeps if its action says so."""

    def step(self, action: Any) -> Any:
        time.sleep(0.3 * int(action))
        return super().step(action)
