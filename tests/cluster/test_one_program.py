"""Programs that span hosts: nothing of what is computed changes, and nothing but their collectives crosses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import motet
from motet.engine.hosts.cluster import Cluster
from motet.plan.collectives import collectives
from motet.plan.hosts import over, spanning, together
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.cluster.measured import Measured
from tests.cluster.rare import rare
from tests.cluster.test_laws_over_hosts import ROUNDS, counts, here
from tests.engine.led import Led
from tests.laws.cases import ALGORITHMS, DOUBLE, assert_close, assert_identical

pytestmark = pytest.mark.cluster


def sharded(plan: Plan, shards: int) -> Plan:
    """The plan with a learner of several shards."""
    return replace(plan, fragments={**plan.fragments, "learner": replace(plan.fragments["learner"], shards=shards)})


PLANS: dict[str, Plan] = {
    "anakin": over(motet.anakin(4), 2),
    "multi_learner": over(motet.multi_learner(2), 2),
    "sebulba": over(motet.sebulba(actors=2, threads=1, learners=2, lag=0), 2),
    "sebulba-lag": over(motet.sebulba(actors=2, threads=2, learners=2, lag=1), 2),
    "coarse": over(motet.coarse(2, learners=4), 2),
    "pearl": over(sharded(motet.pearl(2, lag=0), 2), 2),
}
PAIRS = [
    *(("ppo", plan) for plan in ("anakin", "sebulba", "coarse")),
    *(("impala", plan) for plan in ("multi_learner", "coarse")),
    ("dqn", "anakin"),
    ("dqn-prioritised", "pearl"),  # one sum tree, so the replay is in one piece
    *rare(
        ("ppo", "multi_learner"),
        *(("impala", plan) for plan in ("anakin", "sebulba")),
        *(("dqn", plan) for plan in ("multi_learner", "sebulba", "coarse")),
    ),
]
IN_ORDER = ("multi_learner", "sebulba", "pearl")
"""Sums of two shards, which are the same in either order."""


@pytest.fixture(scope="module")
def kept(ray_cluster: Any) -> Measured:
    return Measured(Cluster(hosts=2))


def led_by(kept: Measured, name: str, plan: Plan) -> Led:
    """A run over hosts, with law 6: what went over links, and from host to host, is what the static table says."""
    led = Led(ALGORITHMS[name], plan, kept, iterations=ROUNDS)
    led.run()
    assert led.outcome is not None
    assert counts(led.outcome.links) == counts(traffic(led.graph, plan, project(led.graph, plan), ROUNDS))
    return led


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize(("name", "plan"), PAIRS)
def test_a_program_over_hosts_equals_the_fused_run_on_one(kept: Measured, name: str, plan: str) -> None:
    """Law 4, and on the same runs laws 6, 7 and 13: every row comes once, no message leaves a host that has both of its
    ends, and where the order of no sum changes, one process and several agree bit for bit."""
    chosen = PLANS[plan]
    assert spanning(chosen)
    led = led_by(kept, name, chosen)
    whole, rows = here(name, motet.anakin())
    assert_close(led.state, whole)
    assert_close(led.seen, rows)
    assert len(led.seen) == ROUNDS
    assert led.outcome is not None
    assert plan == "pearl" or not any(use.crossing for use in led.outcome.links)
    if plan in IN_ORDER:
        assert_identical(led.state, here(name, together(chosen))[0])
    if plan == "anakin" and name == "dqn":
        assert_identical(led.state, led_by(kept, name, chosen).state)  # law 5, where sums are of four


def test_a_program_over_hosts_with_lag_repeats(kept: Measured) -> None:
    """Laws 5 and 13: bit for bit, overlap included."""
    plan = PLANS["sebulba-lag"]
    one, other = led_by(kept, "impala", plan), led_by(kept, "impala", plan)
    for theirs, rows in ((other.state, other.seen), here("impala", together(plan))):
        assert_identical(one.state, theirs)
        assert_identical(one.seen, rows)


def test_collectives_are_as_large_as_predicted(kept: Measured) -> None:
    """Law 6, inside of XLA: with a device on each host, either sends what the plan says, but for the few bytes that
    come before each message. Nothing else crosses."""
    plan = PLANS["sebulba"]
    large = replace(ALGORITHMS["ppo"], hidden=(256, 256))
    before = kept.crossed()
    led = Led(large, plan, kept, iterations=ROUNDS)
    led.run()
    assert led.outcome is not None and not any(use.crossing for use in led.outcome.links)
    predicted = ROUNDS * sum(each.bytes for each in collectives(led.graph, plan))
    for way, after in kept.crossed().items():
        assert predicted <= after - before.get(way, 0) <= 1.01 * predicted, way
