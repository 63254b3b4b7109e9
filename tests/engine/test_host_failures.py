"""Environments that die, fail or hang in the middle of a run: an error or a restart, no hang, nothing left behind."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine import threads
from tests.hardening.left import children as started_by
from tests.laws import host_envs
from tests.laws.cases import run, state, traced
from tests.laws.tally import ENVS, STEPS, Tally

TINY = motet.PPO(num_envs=4, num_steps=16, num_minibatches=2, update_epochs=1, hidden=(8,))


def children() -> set[int]:
    """The processes that this one has started and that are not over."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(entry.name))
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Any:
    before = children()
    yield
    assert children() <= before


@dataclass(frozen=True, kw_only=True)
class Counting(Tally):
    """Notes of each iteration which share of its steps really happened, and what the others seem to have paid."""

    def measure(self, params: Any, rollout: Any) -> Any:  # type: ignore[override]
        invented = jnp.where(rollout.valid, 0, jnp.abs(rollout.reward))
        return jnp.stack([jnp.mean(rollout.valid), jnp.mean(invented)])

    def apply(self, state: Any, means: Any) -> Any:
        return replace(state, updates=state.updates + 1, seen=state.seen.at[state.updates, :2].set(means))

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.apply, flow.call(self.measure, flow.unroll(self.act, steps=STEPS)))


def test_a_worker_that_dies_is_replaced_and_its_steps_are_not_invented(tmp_path: Path) -> None:
    rounds, plan = 3, motet.batched(workers=2)
    env = motet.Gymnasium(functools.partial(host_envs.Mortal, str(tmp_path / "died")))
    graph = traced(Counting(), plan, env, iterations=rounds)
    outcome, watcher = run(graph, plan, iterations=rounds)
    happened, invented = np.asarray(state(graph, outcome, "learner").seen)[:rounds, :2].T
    # One step of each environment of the dead worker is lost, in the iteration of the fifth step.
    assert (STEPS * ENVS * (1 - happened)).tolist() == [0, ENVS // 2, 0]
    assert not invented.any()  # and nothing is said of their rewards
    restarts = [report.var for report in graph.reports].index("restarts")
    assert sum(row[restarts] for row in watcher.seen) == 1


def test_the_metrics_count_restarts(tmp_path: Path) -> None:
    env = motet.Gymnasium(functools.partial(host_envs.Mortal, str(tmp_path / "died")))
    result = motet.train(TINY, env, motet.sebulba(threads=2, workers=1), total_timesteps=256)
    assert result.metrics["restarts"] == 1


def test_too_many_deaths_are_an_error(tmp_path: Path) -> None:
    env = motet.Gymnasium(functools.partial(host_envs.Mortal, str(tmp_path / "died")))
    with pytest.raises(motet.EnvironmentFailed, match="SIGKILL"):
        motet.train(TINY, env, motet.batched(workers=2), total_timesteps=256, restarts=0)


@pytest.mark.parametrize("plan", [motet.batched(workers=2), motet.sebulba(threads=2), motet.coarse(2, workers=1)])
def test_an_error_in_an_environment_is_raised_with_its_traceback(plan: motet.Plan) -> None:
    with pytest.raises(motet.EnvironmentFailed, match=r"(?s)the simulator broke|ZeroDivisionError") as caught:
        motet.train(TINY, host_envs.Failing, plan, total_timesteps=1024)
    assert caught.value.step == 37


def test_a_worker_that_never_returns_ends_the_run() -> None:
    env = motet.Gymnasium(functools.partial(host_envs.Hanging, 3600.0))
    with pytest.raises(motet.EnvironmentTimeout, match="environment"):
        motet.train(TINY, env, motet.batched(workers=2), total_timesteps=1024, step_timeout=1)


def test_an_environment_that_hangs_in_a_thread_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can end the thread, but nobody waits for it either."""
    monkeypatch.setattr(threads, "GRACE", 0.2)
    before = set(threading.enumerate())
    with pytest.raises(motet.Stalled, match="one step of its environments 0 to 3"):
        motet.train(TINY, host_envs.Hanging, motet.batched(workers=0), total_timesteps=1024, step_timeout=1)
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("motet") and thread not in before]
    _wait_for(lambda: True if not any(thread.is_alive() for thread in ours) else None)


TRAIN = """
import motet
print("begin", flush=True)
ppo = motet.PPO(num_envs=8, num_steps=16, num_minibatches=2, hidden=(8,))
motet.train(ppo, "gymnasium/CartPole-v1", motet.batched(workers=2), total_timesteps=10**8)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_run(how: signal.Signals) -> None:
    """Ctrl-C, or the whole process shot dead."""
    with subprocess.Popen([sys.executable, "-c", TRAIN], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            workers = _wait_for(lambda: found if len(found := started_by(process.pid)) >= 2 else None)
            process.send_signal(how)
            process.wait(60)
        finally:
            process.kill()
    _wait_for(lambda: True if not any(Path(f"/proc/{pid}").exists() for pid in workers) else None)


def _wait_for(what: Any, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("nothing of the kind happened in time")
