"""Worker processes: the same numbers as in one thread, deaths that are survived, and nothing left behind."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from motet.envs.gymnasium import Gymnasium
from motet.envs.shared import Bell
from motet.envs.workers import WorkerPool
from motet.errors import BadAlgorithm, EnvironmentFailed, MotetError
from motet.flow.host import Opening
from tests.envs.host_envs import Bad, Closing, Counter, Noisy, Sleepy, Spy
from tests.envs.test_bad_host_envs import left_behind
from tests.envs.test_gymnasium_adapter import assert_same, run


def open_workers(make: Any, **opening: Any) -> WorkerPool:
    pool = Gymnasium(make).open(Opening(**{"first": 0, "count": 4, "seed": 0, "workers": 2, **opening}))
    assert isinstance(pool, WorkerPool)
    return pool


def zeros(count: int = 4) -> tuple[np.ndarray]:
    return (np.zeros(count, np.int32),)


def pids(pool: WorkerPool) -> list[int]:
    return [worker.process.popen.pid for worker in pool._own.workers]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_give_the_trajectories_of_one_thread(workers: int) -> None:
    env = Gymnasium(Noisy)
    assert_same(run(env, 60, count=8, workers=workers), run(env, 60, count=8))


@pytest.mark.parametrize("workers", [0, 1])
def test_pieces_of_a_pool_equal_the_whole(workers: int) -> None:
    env = Gymnasium("CartPole-v1")
    whole = run(env, 60, count=8)
    for first in (0, 4):
        piece = run(env, 60, first=first, count=4, workers=workers)
        for one, other in zip(whole, piece, strict=True):
            np.testing.assert_array_equal(one.next_observation[0][first : first + 4], other.next_observation[0])
            np.testing.assert_array_equal(one.observation[0][first : first + 4], other.observation[0])
            np.testing.assert_array_equal(one.terminated[first : first + 4], other.terminated)


@pytest.mark.parametrize("by", ["function", "id"])
def test_workers_are_new_processes_without_jax(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Spy-v0", entry_point=Spy)
    monkeypatch.setitem(gymnasium.registry, "Spy-v0", spec)
    pool = open_workers("Spy-v0" if by == "id" else Spy)
    in_worker, has_jax, has_one_thread = pool.reset()[0].T
    assert in_worker.all() and has_one_thread.all() and not has_jax.any()
    pool.close()


def test_workers_never_take_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever platform the caller's JAX was told to use, an environment that computes with JAX gets the processor."""
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    pool = open_workers(Counter, count=1, workers=1)
    (pid,) = pids(pool)
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pool.close()
    assert [each for each in variables if each.startswith(b"JAX_PLATFORMS=")] == [b"JAX_PLATFORMS=cpu"]


def test_shares_are_contiguous_and_even() -> None:
    pool = open_workers(Counter, count=5, workers=3)
    assert pool.rows == (slice(0, 2), slice(2, 4), slice(4, 5))
    where = pool.reset()[0][:, 2].tolist()
    assert len(set(where)) == 3 and where == sorted(where, key=where.index)
    pool.close()
    pool = open_workers(Counter, count=2, workers=5)
    assert len(pids(pool)) == 2
    pool.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_step_returned_stays_during_the_next(workers: int) -> None:
    pool = Gymnasium(Counter).open(Opening(0, 2, 0, workers=workers))
    pool.reset()
    one = pool.step(zeros(2))
    kept = one.observation[0].copy()
    two = pool.step(zeros(2))
    np.testing.assert_array_equal(one.observation[0], kept)
    assert (two.observation[0][:, 0] == 2).all()
    pool.close()


def test_a_step_that_was_begun_is_ready_when_its_slowest_worker_is() -> None:
    pool = open_workers(Sleepy, count=3)
    pool.reset()
    pool.begin((np.array([1, 1, 0], np.int32),))
    assert not pool.ready() and pool.descriptors
    with pytest.raises(MotetError, match="is still stepping"):
        pool.begin(zeros(3))
    assert pool.finish().reward.tolist() == [1, 1, 1]
    assert pool.step(zeros(3)).reward.tolist() == [2, 2, 2]
    pool.close()


def test_a_killed_worker_is_started_anew_with_fresh_episodes() -> None:
    pool = open_workers(Noisy)
    first = pool.reset()[0].copy()
    pool.step(zeros())
    os.kill(pids(pool)[1], signal.SIGKILL)
    step = pool.step(zeros())
    assert step.valid.tolist() == [True, True, False, False]
    assert step.restarts.tolist() == [0, 0, 1, 0]
    assert not step.reward[2:].any() and not step.terminated[2:].any() and not step.truncated[2:].any()
    assert (step.observation[0][2:, 0] == 0).all() and (step.observation[0][2:] != first[2:]).any()
    after = pool.step(zeros())
    assert after.valid.all() and not after.restarts.any()
    pool.close()


def test_a_death_in_the_middle_of_a_step_is_survived() -> None:
    pool = open_workers(partial(Bad, "die", 3), count=1, workers=1)
    pool.reset()
    steps = [pool.step(zeros(1)) for _ in range(3)]
    assert [bool(step.valid[0]) for step in steps[:2]] == [True, True] and not steps[2].valid[0]
    again = [pool.step(zeros(1)).observation[0][0, 0] for _ in range(2)]
    assert again == [1, 2]
    pool.close()


def test_a_death_before_a_reset_is_survived_and_reported_with_the_next_step() -> None:
    pool = open_workers(Counter)
    os.kill(pids(pool)[0], signal.SIGKILL)
    assert (pool.reset()[0][:, 0] == 0).all()
    step = pool.step(zeros())
    assert step.valid.all() and step.restarts.tolist() == [1, 0, 0, 0]
    pool.close()


def test_a_worker_that_dies_after_its_step_has_delivered_it_and_is_started_anew_for_the_next() -> None:
    pool = open_workers(Sleepy, count=2)
    pool.reset()
    pool.begin((np.array([1, 0], np.int32),))
    time.sleep(0.1)  # The second worker has finished by then, and the first has not.
    assert not pool.ready()
    os.kill(pids(pool)[1], signal.SIGKILL)
    assert pool.finish().valid.tolist() == [True, True]
    after = pool.step(zeros(2))
    assert after.valid.tolist() == [True, False] and after.restarts.tolist() == [0, 1]
    pool.close()


def test_too_many_deaths_are_an_error() -> None:
    before = left_behind()
    pool = open_workers(partial(Bad, "die", 1), count=2, restarts=2)
    pool.reset()
    pool.step(zeros(2))
    with pytest.raises(EnvironmentFailed, match=r"SIGKILL.*started anew 2 times"):
        pool.step(zeros(2))
    del pool
    assert left_behind() == before


def test_a_bad_action_is_the_algorithms_fault_in_a_worker_too() -> None:
    pool = open_workers(Counter, count=2, workers=1)
    pool.reset()
    with pytest.raises(BadAlgorithm, match="below 2"):
        pool.step((np.array([0, 2], np.int32),))


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    before = left_behind()
    pool = open_workers(partial(Closing, str(tmp_path)))
    pool.reset()
    pool.step(zeros())
    pool.close()
    pool.close()
    assert left_behind() == before
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(MotetError, match="closed"):
        pool.step(zeros())


def test_a_pool_that_is_forgotten_gives_everything_back() -> None:
    before = left_behind()
    pool = open_workers(Counter)
    pool.reset()
    del pool
    gc.collect()
    assert left_behind() == before


def test_arrays_outlive_their_pool() -> None:
    pool = open_workers(Counter)
    observation = pool.reset()[0]
    pool.close()
    assert (observation[:, 0] == 0).all()


PROGRAM = """
import sys
from functools import partial

import gymnasium
import numpy as np

from motet.envs.form import Form, SpaceLeaf
from motet.envs.group import Singles
from motet.envs.workers import WorkerPool
from motet.flow.host import Opening
from tests.envs.host_envs import Sleepy

print("main runs", flush=True)


class Mine(Sleepy):
    "Of the main module, which no worker imports."


def by_id(opening):
    from motet.envs.gymnasium import Gymnasium

    gymnasium.register("Mine-v0", entry_point="__main__:Mine")
    return Gymnasium("Mine-v0").open(opening)


def without_jax(opening):
    env = Mine()
    leaves = (SpaceLeaf((3,), "float32"),), (SpaceLeaf((), "int32"),)
    form = Form("Mine", env.observation_space, env.action_space, *leaves, "float32")
    return WorkerPool(partial(Singles, Mine, form), form, opening)


if __name__ == "__main__":
    pool = globals()[sys.argv[1]](Opening(0, 2, 0, workers=2))
    pool.reset()
    print(*[worker.process.popen.pid for worker in pool._own.workers], flush=True)
    while True:
        pool.step((np.full(2, int(sys.argv[2]), np.int32),))
"""


def start_program(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], list[int]]:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        process_group=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "main runs\n"
    return process, [int(pid) for pid in process.stdout.readline().split()]


def gone(pids: list[int], within: float) -> bool:
    deadline = time.monotonic() + within
    while any(Path(f"/proc/{pid}").exists() and "Z" not in state(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@pytest.mark.parametrize("sleep", ["0", "1000000"])
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, sleep: str) -> None:
    process, workers = start_program(tmp_path, "without_jax", sleep)
    assert len(workers) == 2
    time.sleep(0.2)
    process.kill()
    process.communicate()
    assert gone(workers, within=15)


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    process, workers = start_program(tmp_path, "by_id", "0")
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # As the terminal does: to the workers too.
    out, err = process.communicate(timeout=20)
    assert gone(workers, within=0.1)
    assert out == "" and err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")


def test_descriptors_may_be_many() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        env = Gymnasium(Noisy)
        assert_same(run(env, 20, count=3, workers=2), run(env, 20, count=3))
    finally:
        for each in many:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_bell_of_pipes_rings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")
    monkeypatch.delattr(os, "memfd_create")
    bell = Bell.new()
    assert len(set(bell.descriptors)) == 2
    bell.close()
    env = Gymnasium(Noisy)
    assert_same(run(env, 20, count=3, workers=2), run(env, 20, count=3))
