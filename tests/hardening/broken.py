"""Gymnasium environments that are broken, each in one way. Worker processes import this file: no JAX here."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

AT = 5
"""The step of an episode in which most of them break."""
END = 8
"""How long an episode of a sound one is."""


class Odd(BaseException):
    """No `Exception`."""


class Nasty(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("str fails too")


class Broken(gymnasium.Env[Any, Any]):
    """Counts to 8 and says who it is, unless `how` says otherwise. The reward is the count, so that whoever learns can
    tell whether a row belongs together, and to whom.

    What happens in a step happens only `once` if a file is named for that, which is then made; and only `after` a
    file is there, if one is named.
    """

    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    lent = np.zeros(2, np.float32)
    """One array for all of them: what `how` = "shared buffer" hands out."""

    def __init__(self, how: str = "", once: str = "", after: str = ""):
        self.how, self.once, self.after = how, once, after
        self.count, self.who, self.began = 0, 0, False
        match how:
            case "raise in init":
                raise RuntimeError("no battery")
            case "exit in init":
                sys.exit(0)
            case "odd in init":
                raise Odd("odd")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count, self.began = 0, True
        self.who = self.who if seed is None else seed % 97
        match self.how:
            case "raise in reset":
                raise RuntimeError("no battery")
            case "exit in reset":
                sys.exit(0)
            case "hang in reset":
                time.sleep(1000)
            case "nan in reset":
                return np.float32([0, np.nan]), {}
            case "shape in reset":
                return np.zeros(3, np.float32), {}
            case "one from reset":
                return np.zeros(2, np.float32)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        reward, end = float(self.count), self.count == END
        if self.count != AT or not self._now():
            return self._seen(), reward, end, False, {}
        self._break()
        observation = {
            "nan": np.float32([1, np.nan]),
            "infinite": np.float32([np.inf, 1]),
            "shape": np.zeros(3, np.float32),
            "scalar": np.float32(1),
            "text": np.array(["a", "b"]),
            "objects": np.array([None, {}], object),
            "complex": np.zeros(2, np.complex64),
            "nothing": None,
            "dictionary": {"a": np.zeros(2, np.float32)},
        }.get(self.how, self._seen())
        reward = {
            "endless reward": float("inf"),
            "huge reward": 1e19,
            "no reward": None,
            "many rewards": [1, 2],
            "reward of text": "1",
        }.get(self.how, reward)
        terminated = {"no flag": 1, "flag of nothing": None}.get(self.how, False)
        info = {"no info": None}.get(self.how, {})
        if self.how == "three":
            return observation, reward, False
        return observation, reward, terminated, False, info

    def _seen(self) -> Any:
        seen = np.float32([self.count, self.who])
        if self.how == "shared buffer":
            Broken.lent[:] = seen
            return Broken.lent
        return seen.astype(np.float64) if self.how == "double" else seen

    def _now(self) -> bool:
        if self.after and not Path(self.after).exists():
            return False
        try:
            if self.once:
                Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _break(self) -> None:
        if self.how in RAISES:
            raise RAISES[self.how]()
        if self.how in DOES:
            DOES[self.how]()

    def close(self) -> None:
        if not self.began and self.how != "raise in close":
            return
        match self.how:
            case "raise in close" | "raise in a later close":
                raise RuntimeError("the lid is stuck")
            case "exit in close":
                sys.exit(0)
            case "odd in close":
                raise Odd("odd")
            case "hang in close":
                time.sleep(1000)


class Large(gymnasium.Env[Any, Any]):
    """Shows 50 MB at a time."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (50_000_000,), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(50_000_000, 7, np.uint8), {}


def _recurse() -> None:
    _recurse()


def _signal(number: int) -> None:
    os.kill(os.getpid(), number)


def _orphan() -> None:
    _stay()
    _signal(signal.SIGKILL)


def _stay() -> None:
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)


def _hold() -> None:
    ctypes.PyDLL(None).sleep(1000)  # in native code that keeps Python's lock


RAISES = {
    "raise": lambda: RuntimeError("no battery"),
    "exit 0": lambda: SystemExit(0),
    "exit 5": lambda: SystemExit(5),
    "odd": lambda: Odd("odd"),
    "nasty": Nasty,
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration(7),
    "no memory": lambda: MemoryError("no more"),
    "interrupt": KeyboardInterrupt,
    "many lines": lambda: ValueError("first line\nsecond line"),
    "group": lambda: BaseExceptionGroup("many", [Odd("one"), Odd("two")]),
}
DOES: dict[str, Any] = {
    "recursion": _recurse,
    "hang": lambda: time.sleep(1000),
    "hold the lock": _hold,
    "die": lambda: _signal(signal.SIGKILL),
    "terminate": lambda: _signal(signal.SIGTERM),
    "stop": lambda: _signal(signal.SIGSTOP),
    "crash": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "end": lambda: os._exit(3),
    "end well": lambda: os._exit(0),
    "copy": os.fork,
    "orphan": _orphan,
    "stay": _stay,
    "talk": lambda: (os.write(1, b"\0\xff word " * 9000), os.write(2, b"complaint " * 9000)),
    "warn": lambda: warnings.warn("old", UserWarning, stacklevel=2),
    "move": lambda: os.chdir("/"),
    "forget": os.environ.clear,
    "ignore signals": lambda: (
        threading.current_thread() is threading.main_thread() and signal.signal(signal.SIGINT, signal.SIG_IGN)
    ),
    "thread": lambda: threading.Thread(target=time.sleep, args=(0.5,), name="of an environment").start(),
    "remove the run": lambda: shutil.rmtree("run", ignore_errors=True),
    "put a file for the run": lambda: (shutil.rmtree("run", ignore_errors=True), Path("run").write_text("mine")),
    "put a folder for the policy": lambda: Path("run/policy.safetensors").mkdir(exist_ok=True),
    "remove the metrics": lambda: Path("run/metrics.jsonl").unlink(missing_ok=True),
    "slow": lambda: time.sleep(0.02),
}
