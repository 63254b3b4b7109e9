"""Worker processes whose environments fork, and worker processes that nobody is left to end."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.flow.host import Opening
from tests.hardening.broken import Forking
from tests.hardening.left import nothing_left


def step_all(env: motet.Gymnasium, steps: int, **opening: float) -> list[motet.EnvironmentFailed | np.ndarray]:
    pool = env.open(Opening(**{"first": 0, "count": 4, "seed": 0, "workers": 2, "timeout": 20.0, **opening}))  # type: ignore[arg-type]
    try:
        pool.reset()
        return [pool.step((np.zeros(4, np.int32),)).valid.copy() for _ in range(steps)]
    finally:
        pool.close()


def alive(group: int) -> list[int]:
    """A process and those of its group that are not over."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if group in (int(fields[2]), int(entry.name)) and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def test_a_copy_of_a_worker_is_found_out() -> None:
    with nothing_left(), pytest.raises(motet.BadEnvironment, match=r"Environment \d \(Forking\) forked, and the child"):
        step_all(motet.Gymnasium(partial(Forking, "copy")), 8)


def test_a_process_of_its_own_does_not_hide_a_workers_death() -> None:
    began = time.monotonic()
    with nothing_left(), pytest.raises(motet.EnvironmentFailed, match="it was killed by signal 9"):
        step_all(motet.Gymnasium(partial(Forking, "orphan")), 8, restarts=0)
    assert time.monotonic() - began < 15


def test_a_dead_worker_with_a_living_child_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    env = motet.Gymnasium(partial(Forking, "orphan"))
    with nothing_left():
        valid = step_all(env, 7, restarts=2)
    assert [int(each.sum()) for each in valid] == [4, 4, 4, 4, 0, 4, 4]


def test_it_does_without_descriptors_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with nothing_left(), pytest.raises(motet.EnvironmentFailed, match="it was killed by signal 9"):
        step_all(motet.Gymnasium(partial(Forking, "orphan")), 8, restarts=0)


def test_what_an_environment_has_started_ends_with_its_worker() -> None:
    env = motet.Gymnasium(partial(Forking, "stay"))
    pool = env.open(Opening(0, 1, 0, workers=1))
    pool.reset()
    group = pool._own.workers[0].process.popen.pid  # type: ignore[attr-defined]
    for _ in range(6):
        pool.step((np.zeros(1, np.int32),))
    assert len(alive(group)) >= 2
    pool.close()
    patient = time.monotonic() + 20
    while alive(group) and time.monotonic() < patient:
        time.sleep(0.05)  # the system takes its time with those who were ended
    assert not alive(group)


PROGRAM = """
import ctypes, functools, sys
import numpy as np
import motet
from motet.flow.host import Opening
from tests.hardening.test_processes import NeverBack
pool = motet.Gymnasium(NeverBack).open(Opening(0, 2, 0, workers=2, timeout=1000.0))
print(*(worker.process.popen.pid for worker in pool._own.workers), flush=True)
pool.reset()
pool.begin((np.zeros(2, np.int32),))
print("stepping", flush=True)
pool.finish()
"""


class NeverBack(Forking):
    """Sleeps in native code that holds Python's lock."""

    def __init__(self) -> None:
        super().__init__("")

    def step(self, action: object) -> object:
        ctypes.PyDLL(None).sleep(1000)
        return super().step(action)


def test_workers_end_with_their_parent_even_inside_native_code() -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert process.stdout.readline() == "stepping\n"
        time.sleep(0.5)
        process.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 15
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))
