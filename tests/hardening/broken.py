"""Gymnasium environments that are broken, each in one way. Worker processes import this file: no JAX here."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np

AT = 5
"""The step in which most of them break, of the first episode of the second environment alone or of all."""


class Odd(BaseException):
    """No `Exception`."""


class Nasty(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("str fails too")


class Broken(gymnasium.Env[Any, Any]):
    """Counts to 8, unless `how` says otherwise."""

    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str = ""):
        self.how, self.count, self.began = how, 0, False
        if how == "raise in init":
            raise RuntimeError("no battery")
        if how == "exit in init":
            sys.exit(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count, self.began = 0, True
        if self.how == "raise in reset":
            raise RuntimeError("no battery")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        observation, reward, flag = np.full(2, self.count, np.float32), 1.0, False
        if self.count == AT:
            self._break()
            observation = {
                "nan": np.float32([1, np.nan]),
                "shape": np.zeros(3, np.float32),
                "text": np.array(["a", "b"]),
                "nothing": None,
            }.get(self.how, observation)
            reward = {"endless reward": float("inf"), "no reward": None, "many rewards": [1, 2]}.get(self.how, reward)
            flag = 1 if self.how == "no flag" else flag
        end = self.count == 8
        return (observation, reward, end) if self.how == "three" else (observation, reward, flag or end, False, {})

    def _break(self) -> None:
        match self.how:
            case "raise":
                raise RuntimeError("no battery")
            case "exit 0":
                sys.exit(0)
            case "exit 5":
                sys.exit(5)
            case "odd":
                raise Odd("odd")
            case "nasty":
                raise Nasty
            case "generator exit":
                raise GeneratorExit
            case "hang":
                time.sleep(1000)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "end":
                os._exit(3)

    def close(self) -> None:
        if not self.began and self.how != "raise in close":
            return
        match self.how:
            case "raise in close" | "raise in a later close":
                raise RuntimeError("the lid is stuck")
            case "exit in close":
                sys.exit(0)
            case "hang in close":
                time.sleep(1000)


class Forking(Broken):
    """Starts processes of its own in the step in which others break."""

    def _break(self) -> None:
        if self.how == "copy":
            os.fork()
            return
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        if self.how == "orphan":
            os.kill(os.getpid(), signal.SIGKILL)
