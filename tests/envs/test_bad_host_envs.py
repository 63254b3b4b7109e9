"""Whatever an environment does wrong, the error says which one, when, and what; and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import motet
from motet.envs.gymnasium import Gymnasium
from motet.envs.workers import WorkerPool
from motet.errors import EnvironmentFailed, EnvironmentTimeout
from motet.flow.host import Opening
from tests.envs import host_envs
from tests.envs.host_envs import Bad, Chatty, Counter
from tests.hardening.left import children, descriptors


def play(make: Any, workers: int, steps: int = 40, **opening: Any) -> None:
    pool = Gymnasium(make).open(Opening(**{"first": 10, "count": 2, "seed": 0, "workers": workers, **opening}))
    try:
        pool.reset()
        for _ in range(steps):
            pool.step((np.zeros(opening.get("count", 2), np.int32),))
    finally:
        pool.close()


def fails(kind: type[Exception], make: Any, *messages: str, workers: int, **opening: Any) -> Any:
    before = left_behind()
    with pytest.raises(kind) as caught:
        play(make, workers, **opening)
    for message in messages:
        assert message in str(caught.value)
    assert left_behind() == before
    return caught.value


def left_behind() -> set[object]:
    """Open descriptors and child processes."""
    return {*descriptors(), *children()}


WRONG = [
    ("nan", "the observation should be finite, but holds nan at [1]"),
    ("inf", "the observation should be finite, but holds inf at [2]"),
    ("shape", "the observation should have shape (3,), but has (4,)"),
    ("scalar", "the observation should have shape (3,), but has ()"),
    ("dtype", "the observation should have dtype float32, but has <U1"),
    ("complex", "the observation should have dtype float32, but has complex64"),
    ("none", "the observation should have dtype float32, but has object (NoneType)"),
    ("reward", "the reward should be a finite number, but is nan"),
    ("flag", "terminated should be a bool, but is 0 (int)"),
    ("four", "step should return (observation, reward, terminated, truncated, info), but returned 4 values"),
]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_bad_step_is_named(wrong: str, message: str, count: int) -> None:
    messages = ("Environment 10 (", "in step 37 of its episode", message)
    fails(motet.BadEnvironment, partial(Bad, wrong), *messages, workers=0, count=count)


@pytest.mark.parametrize("wrong", ["nan", "shape", "flag"])
def test_a_bad_step_in_a_worker_is_named_alike(wrong: str) -> None:
    message = dict(WRONG)[wrong]
    fails(motet.BadEnvironment, partial(Bad, wrong), "Environment 10 (", "in step 37", message, workers=1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_reset_is_named(workers: int) -> None:
    fails(motet.BadEnvironment, partial(Bad, "nan", 0), "when it was reset", "holds nan", workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("at", "when"), [(0, "in reset"), (37, "in step 37 of its episode")])
def test_an_exception_comes_back_with_its_traceback(workers: int, at: int, when: str) -> None:
    messages = [f"raised {when}: KeyError: 'the lid is off'"]
    if workers:
        messages += ["host_envs.py", "in spoil", "In worker"]
    error = fails(EnvironmentFailed, partial(Bad, "raise", at), *messages, workers=workers)
    assert error.index in (10, 11) and error.step == at
    assert workers or isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize(("at", "doing"), [(0, "resetting"), (3, "stepping")])
def test_an_environment_that_hangs_is_named(at: int, doing: str) -> None:
    before = left_behind()
    pool = Gymnasium(partial(Bad, "hang", at)).open(Opening(10, 2, 0, workers=1))
    assert isinstance(pool, WorkerPool)
    pool._opening = replace(pool._opening, timeout=1.0)  # Only now: the start may take longer.

    def go_on() -> None:
        pool.reset()
        for _ in range(3):
            pool.step((np.zeros(2, np.int32),))

    with pytest.raises(EnvironmentTimeout) as caught:
        go_on()
    message = f"After 1 s worker 0 with environments 10 to 11 is still {doing}, at environment 10 (Bad)"
    assert message in str(caught.value)
    assert left_behind() == before


def test_a_worker_that_hangs_while_starting_is_named() -> None:
    messages = "worker 0 with environments 10 to 11 is still starting", "raise `step_timeout`"
    fails(EnvironmentTimeout, host_envs.hangs_while_starting, *messages, workers=1, timeout=1.5)


def test_a_worker_that_dies_while_starting_is_an_error_at_once() -> None:
    message = "died while starting: it was killed by signal 15 (SIGTERM)"
    fails(EnvironmentFailed, host_envs.dies_while_starting, message, "environments 10 to 11", workers=1)


def test_an_environment_that_cannot_be_made_in_a_worker_is_named() -> None:
    message = "Environment 10 (raises_while_starting) could not be made: OSError: no display"
    fails(EnvironmentFailed, host_envs.raises_while_starting, message, "host_envs.py", workers=1)
    with pytest.raises(motet.BadEnvironment, match="cannot be made: ZeroDivisionError"):
        Gymnasium(lambda: 1 // 0)


def test_an_environment_with_another_space_is_named() -> None:
    message = "has another observation space than the first one"
    fails(motet.BadEnvironment, host_envs.another_space_in_workers, message, "(4,)", "(3,)", workers=1)


def test_what_cannot_be_pickled_is_refused_before_anything_starts() -> None:
    lock = threading.Lock()

    def make() -> Counter:
        with lock:
            return Counter()

    fails(motet.BadEnvironment, make, "can be pickled", "lock", "workers=0", workers=1)
    play(make, workers=0, steps=2)


def test_prints_go_through(capfd: pytest.CaptureFixture[str]) -> None:
    play(Chatty, workers=1, steps=20, count=1)
    said = capfd.readouterr()
    assert said.out.count("x" * 1000) == 20 and said.err.count("y" * 1000) == 20


def test_an_episode_that_never_ends_is_no_error() -> None:
    play(partial(Counter, length=-1), workers=0, steps=300)


def test_too_little_shared_memory_is_an_error_before_anything_starts() -> None:
    program = """
import resource
from motet.envs.form import Form, SpaceLeaf
from motet.envs.workers import WorkerPool
from motet.errors import NotEnoughMemory
from motet.flow.host import Opening
form = Form("Large", None, None, (SpaceLeaf((100,), "float32"),), (SpaceLeaf((), "int32"),), "float32")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    WorkerPool(print, form, Opening(0, 1000, 0, workers=1))
except NotEnoughMemory as error:
    assert "1000 environments of 'Large'" in str(error) and "bytes of shared memory" in str(error), error
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "refused\n", done.stderr
