"""Evaluations and conditions over processes that Ray has put on two nodes: as in one process, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import motet
from motet.runs import checkpoints
from motet.runs.folder import read_rows
from tests.cluster.processes import gone, hosts
from tests.engine.here import without_time
from tests.laws.cases import assert_identical

pytestmark = pytest.mark.cluster
IMPALA = motet.IMPALA(num_envs=8, num_steps=16, hidden=(8,))


@pytest.fixture(autouse=True)
def left_nothing() -> Iterator[None]:
    before = set(hosts())
    yield
    assert gone(15, before), f"processes are left: {hosts()}"


def enough(row: Any) -> bool:
    """Where an evaluation is of, and no other."""
    return row["iteration"] == 60 and "eval/return" in row


class Kills(motet.Callback):
    """Kills a process at an evaluation, once."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def evaluation(self, evaluation: Any) -> None:
        if evaluation.iteration == self.iteration:
            os.kill(hosts()[-1], signal.SIGKILL)


def train(plan: motet.Plan, **more: Any) -> motet.Result:
    options = {"total_timesteps": 128 * 120, "seed": 5, "progress": False, "eval_steps": 128 * 10, "eval_episodes": 4}
    return motet.train(IMPALA, "CartPole-v1", plan, stop_when=enough, **{**options, **more})


@pytest.mark.parametrize(
    ("plan", "kill"),
    [(motet.coarse(2, lag=1), 40), (motet.anakin(2), None)],
    ids=["messages, and a process is killed", "one program"],
)
def test_a_watched_run_is_judged_and_ended_as_in_one_process(
    plan: motet.Plan, kill: int | None, ray_cluster: Any, tmp_path: Path
) -> None:
    """Bit for bit: what was learned, every evaluation and row once and in order, the best policy, and the end."""
    alone, folder = train(plan), tmp_path / "run"
    cluster, kills = motet.Cluster(hosts=2, cut_seconds=0.2), [Kills(kill)] if kill else []
    ended = train(plan, cluster=cluster, callbacks=kills, run_dir=folder)
    assert len(ended.recoveries) == len(kills)
    assert 60 <= ended.iterations == alone.iterations < 120 and ended.stopped == alone.stopped != ""
    assert_identical(jax.tree.leaves(ended.state), jax.tree.leaves(alone.state))
    assert without_time(read_rows(folder)) == without_time(ended.history) == without_time(alone.history)
    written = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert without_time(written) == without_time(ended.evaluations) == without_time(alone.evaluations)
    assert alone.best is not None
    best = motet.load(folder / "best").params
    assert_identical(jax.tree.leaves(best), jax.tree.leaves(alone.best.policy.params))
    assert int(checkpoints.all_of(folder)[-1].name) == ended.iterations
