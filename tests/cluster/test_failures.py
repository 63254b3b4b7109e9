"""Law 15: kill any process of a run, and its end is the same, bit for bit. `make failures` does it many times more."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.plan.hosts import over
from motet.runs import checkpoints
from motet.runs.folder import read_rows
from tests.cluster.processes import gone, hosts
from tests.laws.cases import assert_identical

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),  # a node that a test adds
]
IMPALA = motet.IMPALA(num_envs=8, num_steps=16, hidden=(8,))
LENGTH = 128 * 600
PLAN = over(motet.coarse(2, lag=1), 2)
QUICK: dict[str, Any] = {"heartbeat": 6.0, "cut_seconds": 0.2}


@pytest.fixture(autouse=True)
def left_nothing() -> Iterator[None]:
    """Whatever a run has started has ended when it has."""
    before = set(hosts())
    yield
    assert gone(15, before), f"processes are left: {hosts()}"


@functools.cache
def undisturbed() -> Any:
    """The run that nothing happened to, in one process."""
    return motet.train(IMPALA, "CartPole-v1", motet.coarse(2, lag=1), total_timesteps=LENGTH, seed=5, progress=False)


class At(motet.Callback):
    """Does something when the run has come to some iterations."""

    def __init__(self, *what: tuple[int, Callable[[], None]]):
        self.what, self.said = list(what), list[str]()

    def row(self, row: Any) -> None:
        if self.what and row["iteration"] >= self.what[0][0]:
            self.what.pop(0)[1]()

    def status(self, text: str) -> None:
        self.said.append(text)


def trained(*what: tuple[int, Callable[[], None]], run_dir: Path | None = None, **options: Any) -> tuple[Any, At]:
    told = At(*what)
    result = motet.train(
        IMPALA,
        "CartPole-v1",
        PLAN,
        total_timesteps=LENGTH,
        seed=5,
        progress=False,
        callbacks=[told],
        run_dir=run_dir,
        cluster=motet.Cluster(hosts=2, **{**QUICK, **options}),
    )
    return result, told


def signalled(number: int, which: int) -> Callable[[], None]:
    return lambda: os.kill(hosts()[which], number)


def same_rows(one: Any, other: Any) -> bool:
    times = {"seconds", "steps_per_second"}
    rows = [[{name: row[name] for name in row if name not in times} for row in each] for each in (one, other)]
    return rows[0] == rows[1]


def test_killed_processes_change_nothing(ray_cluster: Any, tmp_path: Path) -> None:
    """One process by SIGKILL, another by SIGSTOP, which is named when it has been silent for too long: parameters,
    metrics and the folder are those of the undisturbed run."""
    kills = [(200, signalled(signal.SIGKILL, 0)), (400, signalled(signal.SIGSTOP, 1))]
    result, told = trained(*kills, run_dir=tmp_path / "run")
    causes = [each.cause for each in result.recoveries]
    assert " is gone: " in causes[0] and any("has not answered for 6 s" in cause for cause in causes[1:]), causes
    assert all(each.seconds > 0 and "process" in each.cause for each in result.recoveries)
    assert any("starting again from iteration" in text for text in told.said)
    assert sum("the run went on from iteration" in warning for warning in result.warnings) == len(causes)
    assert_identical(jax.tree.leaves(result.state), jax.tree.leaves(undisturbed().state))
    assert same_rows(result.history, undisturbed().history)
    assert same_rows(read_rows(tmp_path / "run"), undisturbed().history)
    assert int(checkpoints.all_of(tmp_path / "run")[-1].name) == result.iterations


def test_a_lost_node_is_done_without(ray_cluster: Any) -> None:
    """Its raylet and all its processes end at once; the run goes on with what is left."""
    worker = next(iter(ray_cluster.worker_nodes))
    result, _ = trained((200, lambda: ray_cluster.remove_node(worker, allow_graceful=False)))
    ray_cluster.add_node(num_cpus=4)
    assert len(result.recoveries) >= 1
    assert_identical(jax.tree.leaves(result.state), jax.tree.leaves(undisturbed().state))


def test_a_process_that_dies_before_it_begins_is_replaced(ray_cluster: Any) -> None:
    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(hosts()) < 1:
            time.sleep(0.01)
        time.sleep(1.0)
        os.kill(hosts()[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    result, _ = trained()
    thread.join()
    assert result.recoveries[0].iteration == 0
    assert_identical(jax.tree.leaves(result.state), jax.tree.leaves(undisturbed().state))


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)])
def test_hosts_end_with_whoever_leads_them_and_the_run_is_resumed(
    ray_cluster: Any, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """Shot dead, or asked to end, as a cluster's scheduler does when a job's time is over: then it saves itself."""
    folder = tmp_path / "run"
    options = "--num-envs 8 --num-steps 16 --hidden 8 --preset coarse --actors 2 --lag 1 --seed 5 --devices 4"
    run = f"--hosts 2 --address {ray_cluster.address} --checkpoint-seconds 0.2 --evaluate-episodes 0".split()
    command = ["train", "impala", "CartPole-v1", *options.split(), *run, "--total-timesteps", str(LENGTH)]
    command += ["--run-dir", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "motet", *command], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not checkpoints.all_of(folder) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    assert process.wait(60) == code
    assert gone(15)
    saved = int(checkpoints.all_of(folder)[-1].name)
    assert 0 < saved < 600
    result = motet.resume(folder, progress=False)
    assert json.loads((folder / "config.json").read_text())["run"]["hosts"] == 2
    assert result.iterations == 600
    assert_identical(jax.tree.leaves(result.state), jax.tree.leaves(undisturbed().state))
    assert np.array_equal([row["iteration"] for row in read_rows(folder)], [row["iteration"] for row in result.history])


def test_a_program_over_hosts_goes_on_as_if_nothing_had_been_killed(ray_cluster: Any) -> None:
    """Its members meet anew in another generation, which begins with what each of them had at the last cut."""
    plan, options = motet.anakin(2), {"total_timesteps": LENGTH, "seed": 5, "progress": False}
    kill = At((200, signalled(signal.SIGKILL, 1)))
    killed = motet.train(
        IMPALA, "CartPole-v1", plan, cluster=motet.Cluster(hosts=2, **QUICK), callbacks=[kill], **options
    )
    assert killed.recoveries
    whole = motet.train(IMPALA, "CartPole-v1", plan, **options)
    assert_identical(jax.tree.leaves(killed.state), jax.tree.leaves(whole.state))
    assert same_rows(killed.history, whole.history)
