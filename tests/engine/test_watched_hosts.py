"""Who watches a run over hosts sees, keeps and ends what it would in one process. No Ray, but everything else."""

from __future__ import annotations

import functools
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import motet
from motet.engine.hosts.cluster import Cluster
from motet.engine.hosts.host import Host
from motet.envs.gymnasium import Gymnasium
from motet.runs import checkpoints
from motet.runs import evaluate as played
from motet.runs.folder import read_rows
from motet.runs.metrics import Row
from tests.engine.here import Here, without_time
from tests.engine.local_hosts import LocalHosts
from tests.envs.test_bounds import TINY, WORST, Beyond
from tests.laws.cases import assert_identical

IMPALA = motet.IMPALA(num_envs=4, num_steps=8, hidden=(8,))
PLANS = {"coarse": motet.coarse(2), "coarse, lag 2": motet.coarse(2, lag=2)}
TOTAL = 32 * 20
EVALUATED: dict[str, Any] = {"eval_steps": 96, "eval_episodes": 3}


def train(plan: str = "coarse", cluster: Cluster | None = None, **more: Any) -> motet.Result:
    options = {"total_timesteps": TOTAL, "seed": 5, "progress": False, **more}
    return motet.train(IMPALA, "CartPole-v1", PLANS[plan], cluster=cluster, **options)


@functools.cache
def alone(plan: str, **more: Any) -> motet.Result:
    """The same run in one process."""
    return train(plan, **more)


def assert_same(one: motet.Result, other: motet.Result) -> None:
    """In what was learned, seen and kept."""
    assert_identical(jax.tree.leaves(one.state), jax.tree.leaves(other.state))
    assert without_time(one.history) == without_time(other.history)
    assert (one.iterations, one.stopped) == (other.iterations, other.stopped)
    assert without_time(one.evaluations) == without_time(other.evaluations)
    if other.best is not None:
        assert one.best is not None and one.best.iteration == other.best.iteration
        assert_identical(jax.tree.leaves(one.best.policy.params), jax.tree.leaves(other.best.policy.params))


def slowly(seed: int = 0, seconds: float = 0.02) -> Callable[[int, LocalHosts], None]:
    """Workers that take their time, each another one."""
    order = random.Random(seed)

    def launched(generation: int, hosts: LocalHosts) -> None:
        for host in hosts.hosts:
            host.prepare = functools.partial(prepared, host, host.prepare)  # type: ignore[method-assign]

    def prepared(host: Host, prepare: Any, *args: Any) -> Any:
        told = prepare(*args)
        assert host.reporter is not None
        host.reporter.delay = lambda worker: time.sleep(order.random() * seconds)
        return told

    return launched


class Killing(motet.Callback):
    """Kills host 1 when something has been seen, once. The workers are slow, so that it happens meanwhile."""

    def __init__(self, row: int | None = None, evaluation: int | None = None):
        self.at, self.done, self.hosts = (row, evaluation), False, None
        self.cluster = Here(on_launch=self.launched, cut_seconds=0.02)

    def launched(self, generation: int, hosts: LocalHosts) -> None:
        slowly()(generation, hosts)
        self.hosts = hosts

    def row(self, row: Row) -> None:
        self._seen(row["iteration"] == self.at[0])

    def evaluation(self, evaluation: Any) -> None:
        self._seen(evaluation.iteration == self.at[1])

    def _seen(self, it: bool) -> None:
        if it and not self.done:
            self.done = True
            self.hosts.kill(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("plan", PLANS)
def test_a_run_over_hosts_is_judged_as_in_one_process(plan: str, tmp_path: Path) -> None:
    judged = train(plan, Here(), run_dir=tmp_path / "run", **EVALUATED)
    assert_same(judged, alone(plan, **EVALUATED))
    assert [row["iteration"] for row in judged.evaluations] == [3, 6, 9, 12, 15, 18, 20]
    assert_identical(jax.tree.leaves(judged.state), jax.tree.leaves(alone(plan).state))  # and as if nobody judged
    written = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == judged.evaluations
    assert judged.best is not None
    best = motet.load(tmp_path / "run" / "best")
    assert_identical(jax.tree.leaves(best.params), jax.tree.leaves(judged.best.policy.params))


def test_evaluations_over_hosts_may_come_at_times() -> None:
    cluster = Here(on_launch=slowly())
    judged = train(cluster=cluster, eval_seconds=1e-6, eval_episodes=2)
    iterations = [row["iteration"] for row in judged.evaluations]
    assert len(iterations) > 1 and iterations == sorted(set(iterations)) and iterations[-1] == judged.iterations
    assert_identical(jax.tree.leaves(judged.state), jax.tree.leaves(alone("coarse").state))


def test_a_learner_waits_for_a_slow_evaluation_only_where_the_next_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate, told, rows = played.evaluate, list[int](), list[int]()

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(0.5)
        told.append(rows[-1])
        return evaluate(*args, **more)

    class Rows(motet.Callback):
        def row(self, row: Any) -> None:
            rows.append(row["iteration"])

    monkeypatch.setattr("motet.judging.evaluate", slow)
    result = train(cluster=Here(), callbacks=[Rows()], eval_steps=160, eval_episodes=2)
    assert told == [10, 15, 20, 20]
    assert [row["iteration"] for row in result.evaluations] == [5, 10, 15, 20]


@pytest.mark.parametrize(("plan", "condition"), [("coarse", "length > 20"), ("coarse, lag 2", "steps >= 200")])
def test_a_condition_on_rows_ends_all_hosts_where_it_ends_one_process(
    plan: str, condition: str, tmp_path: Path
) -> None:
    wanted = alone(plan, stop_when=condition)
    assert 0 < wanted.iterations < 20 and wanted.stopped.startswith(condition)
    ended = train(plan, Here(on_launch=slowly(3)), stop_when=condition, run_dir=tmp_path / "run")
    assert_same(ended, wanted)
    assert int(checkpoints.all_of(tmp_path / "run")[-1].name) == ended.iterations
    assert_same(train(plan, Here(), stop_when=condition), wanted)  # without a folder, and in haste


def enough(row: Row) -> bool:
    """Of a row that has both: the metrics of an iteration, and the evaluation of the same."""
    return row["steps"] == 288 and "eval/return" in row and row["iteration"] == 9


@pytest.mark.parametrize("plan", PLANS)
def test_an_evaluation_ends_all_hosts_where_it_ends_one_process(plan: str, tmp_path: Path) -> None:
    wanted = alone(plan, stop_when=enough, **EVALUATED)
    ended = train(plan, Here(on_launch=slowly(4)), stop_when=enough, run_dir=tmp_path / "run", **EVALUATED)
    assert_same(ended, wanted)
    assert ended.evaluations[-1]["iteration"] == ended.iterations < 20
    assert int(checkpoints.all_of(tmp_path / "run")[-1].name) == ended.iterations


def test_a_condition_that_is_met_at_the_end_or_never_changes_nothing() -> None:
    for condition in ("steps >= 640", "steps > 1e9"):
        assert_same(train(cluster=Here(), stop_when=condition), alone("coarse"))


def test_evaluations_at_times_may_end_all_hosts(tmp_path: Path) -> None:
    cluster, how = Here(on_launch=slowly()), {"eval_seconds": 0.01, "eval_episodes": 2}
    ended = train(cluster=cluster, stop_when="eval/return > 0", run_dir=tmp_path / "run", **how)
    assert 0 < ended.iterations < 20 and ended.stopped.startswith("eval/return > 0 held after")
    assert int(checkpoints.all_of(tmp_path / "run")[-1].name) == ended.iterations
    assert without_time(alone("coarse").history)[: ended.iterations] == without_time(ended.history)


@pytest.mark.parametrize("killing", [{"row": 8}, {"evaluation": 6}], ids=["row", "evaluation"])
def test_after_a_loss_nothing_is_evaluated_or_told_twice(killing: Any, tmp_path: Path) -> None:
    callback = Killing(**killing)
    judged = train("coarse, lag 2", callback.cluster, callbacks=[callback], run_dir=tmp_path / "run", **EVALUATED)
    assert len(judged.recoveries) == 1
    assert_same(judged, alone("coarse, lag 2", **EVALUATED))
    assert [row["iteration"] for row in read_rows(tmp_path / "run")] == list(range(1, 21))
    written = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == judged.evaluations


@pytest.mark.parametrize(("condition", "killing"), [("steps >= 288", {"row": 9}), (enough, {"evaluation": 9})])
def test_a_loss_where_the_condition_is_met_changes_nothing(condition: Any, killing: Any) -> None:
    callback = Killing(**killing)
    ended = train("coarse, lag 2", callback.cluster, callbacks=[callback], stop_when=condition, **EVALUATED)
    assert len(ended.recoveries) == 1
    assert_same(ended, alone("coarse, lag 2", stop_when=condition, **EVALUATED))


def test_a_run_over_hosts_that_goes_on_is_watched_as_the_whole_one(tmp_path: Path) -> None:
    """It keeps what was evaluated, and ends where it would have. One that had met its condition ends at once."""
    wanted, run = {**EVALUATED, "stop_when": "steps >= 480"}, tmp_path / "run"

    class Interrupts(motet.Callback):
        def row(self, row: Any) -> None:
            if row["iteration"] == 10:
                raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        train(cluster=Here(), run_dir=run, callbacks=[Interrupts()], checkpoint_steps=32, **wanted)
    resumed, whole = motet.resume(run, progress=False, cluster=Here()), alone("coarse", **wanted)
    assert_identical(jax.tree.leaves(resumed.state), jax.tree.leaves(whole.state))
    assert (resumed.iterations, resumed.stopped) == (whole.iterations, whole.stopped)
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert without_time(rows) == without_time(whole.evaluations)
    again = motet.resume(run, progress=False, cluster=Here())
    assert again.iterations <= resumed.iterations + 1 and again.stopped


def test_a_callback_that_raises_at_an_evaluation_ends_the_run() -> None:
    class Raises(motet.Callback):
        def evaluation(self, evaluation: Any) -> None:
            raise ArithmeticError("too good")

    with pytest.raises(ArithmeticError, match="too good"):
        train(cluster=Here(), callbacks=[Raises()], **EVALUATED)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("motet actors")]


def test_observations_out_of_bounds_are_counted_on_every_host() -> None:
    def counted(cluster: Cluster | None) -> Any:
        options: dict[str, Any] = {"total_timesteps": 100, "progress": False, "cluster": cluster}
        return motet.train(TINY, Gymnasium(Beyond), motet.coarse(2), **options).outside

    found = counted(Here())
    assert found == counted(None)
    assert (found.count, found.worst) == (4 * 5 * 2, WORST)
