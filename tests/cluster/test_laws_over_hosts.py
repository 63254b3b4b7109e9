"""The laws, with fragments in processes that Ray has put on two nodes: nothing of what is computed changes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import motet
from motet.engine.hosts.cluster import Cluster
from motet.plan.hosts import hosts_of, over
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.cluster.kept import Kept
from tests.cluster.rare import rare
from tests.engine.led import Led
from tests.laws.cases import ALGORITHMS, DOUBLE, assert_close, assert_identical, learner, run, traced

pytestmark = pytest.mark.cluster
ROUNDS = 3


def placed(plan: Plan, **hosts: int) -> Plan:
    """The plan with some fragments on hosts of their own."""
    moved = {name: replace(plan.fragments[name], host=host) for name, host in hosts.items()}
    return replace(plan, fragments={**plan.fragments, **moved})


PLANS: dict[str, Plan] = {
    "coarse": over(motet.coarse(2), 2),
    "coarse-sharded": placed(over(motet.coarse(2, learners=2), 2), learner=1),
    "sebulba": over(motet.sebulba(actors=2, threads=2, lag=0), 2),
    "fine": over(motet.fine(2), 2),
    "central": over(motet.central(2), 2),
    "batched": placed(over(motet.batched(workers=0), 2), environments=1),
    "pearl-host": placed(over(motet.pearl(2, lag=0, replay="host"), 2), replay=1),
}
LAGS: dict[str, Plan] = {
    "sebulba-lag": over(motet.sebulba(actors=2, threads=2, lag=1), 2),
    "pearl-lag": placed(over(motet.pearl(2, lag=1, prefetch=2), 2), replay=1),
}
ALONE = ("coarse-sharded",)
"""Whose sums are added in an order of their own."""
PAIRS = [
    *(("ppo", plan) for plan in ("coarse-sharded", "sebulba", "fine", "batched")),
    ("ppo-unnormalised", "central"),
    *(("impala", plan) for plan in ("coarse", "fine", "central")),
    *(("dqn-prioritised", plan) for plan in ("coarse", "pearl-host")),
    *rare(
        ("ppo", "coarse"),
        *(("impala", plan) for plan in ("coarse-sharded", "sebulba", "batched")),
        *(("dqn-prioritised", plan) for plan in ("sebulba", "fine", "batched")),
        # One sum tree cannot be cut: there `check` refuses priorities.
        *(("dqn", plan) for plan in ("coarse-sharded", "central")),
    ),
]


@pytest.fixture(scope="module")
def kept(ray_cluster: Any) -> Kept:
    return Kept(Cluster(hosts=2))


@functools.cache
def here(name: str, plan: Plan, mode: Any = "threads") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same run in one process: the learner state and the rows."""
    graph = traced(ALGORITHMS[name], plan, motet.make("CartPole-v1"), ROUNDS)
    outcome, watcher = run(graph, plan, iterations=ROUNDS, mode=mode)
    return learner(graph, outcome), watcher.seen


def counts(links: Iterable[Any]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    return {(each.link, each.source, each.target): (each.messages, each.bytes, each.crossing) for each in links}


def assert_traffic(led: Led, plan: Plan) -> None:
    """Law 6: what went over links, and of it what went from host to host, is what the static table says."""
    assert led.outcome is not None
    table = traffic(led.graph, plan, project(led.graph, plan), ROUNDS)
    assert counts(led.outcome.links) == counts(table)
    assert sum(use.crossing for use in led.outcome.links) > 0


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize(("name", "plan"), PAIRS)
def test_every_plan_over_hosts_equals_the_fused_run_on_one(kept: Kept, name: str, plan: str) -> None:
    """Law 4, and on the same runs laws 6, 7 and 13: every row comes once, and threads and hosts agree bit for bit."""
    chosen = PLANS[plan]
    assert {host for fragment in chosen.fragments for host in hosts_of(chosen, fragment)} == {0, 1}
    led = Led(ALGORITHMS[name], chosen, kept, iterations=ROUNDS)
    ours = led.run()
    whole, rows = here(name, motet.anakin())
    assert_close(ours, whole)
    assert_close(led.seen, rows)
    assert len(led.seen) == ROUNDS
    assert_traffic(led, chosen)
    if plan not in ALONE:
        assert_identical(ours, here(name, chosen)[0])
        assert_identical(led.seen, here(name, chosen)[1])


@pytest.mark.parametrize(("name", "plan"), [("impala", "sebulba-lag"), ("dqn-prioritised", "pearl-lag")])
def test_runs_with_lag_repeat_whatever_runs_them(kept: Kept, name: str, plan: str) -> None:
    """Laws 5 and 13: overlap included, two runs over hosts, threads and their serial twin agree bit for bit."""
    led = Led(ALGORITHMS[name], LAGS[plan], kept, iterations=ROUNDS)
    ours = led.run()
    assert_traffic(led, LAGS[plan])
    for theirs, rows in (here(name, LAGS[plan]), here(name, LAGS[plan], "serial")):
        assert_identical(ours, theirs)
        assert_identical(led.seen, rows)
    again = Led(ALGORITHMS[name], LAGS[plan], kept, iterations=ROUNDS)
    assert_identical(ours, again.run())
    assert led.outcome is not None and again.outcome is not None
    assert [use.lags for use in led.outcome.links] == [use.lags for use in again.outcome.links]
    lags = {age for use in led.outcome.links for age in use.lags}
    assert lags >= {0, 1} if plan != "pearl-lag" else lags >= {0, 1, 2}
