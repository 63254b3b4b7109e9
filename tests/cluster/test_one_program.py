"""Programs that span hosts: nothing of what is computed changes, and rows stay on the host where they were made."""

from __future__ import annotations

from typing import Any

import pytest

import motet
from motet.engine.hosts.cluster import Cluster
from motet.plan.hosts import over, spanning
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.cluster.kept import Kept
from tests.cluster.test_laws_over_hosts import ROUNDS, counts, here
from tests.engine.led import Led
from tests.laws.cases import ALGORITHMS, DOUBLE, assert_close, assert_identical

pytestmark = pytest.mark.cluster

PLANS: dict[str, Plan] = {
    "anakin": over(motet.anakin(4), 2),
    "multi_learner": over(motet.multi_learner(2), 2),
    "sebulba": over(motet.sebulba(actors=2, threads=1, learners=2, lag=0), 2),
    "coarse": over(motet.coarse(2, learners=4), 2),
}
PAIRS = [
    *(("ppo", plan) for plan in PLANS),
    *(("impala", plan) for plan in ("anakin", "coarse")),
    *(("dqn", plan) for plan in ("anakin", "sebulba")),
]


@pytest.fixture(scope="module")
def kept(ray_cluster: Any) -> Kept:
    return Kept(Cluster(hosts=2))


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize(("name", "plan"), PAIRS)
def test_a_program_over_hosts_equals_the_fused_run_on_one(kept: Kept, name: str, plan: str) -> None:
    chosen = PLANS[plan]
    assert spanning(chosen)
    led = Led(ALGORITHMS[name], chosen, kept, iterations=ROUNDS)
    ours = led.run()
    whole, rows = here(name, motet.anakin())
    assert_close(ours, whole)
    assert_close(led.seen, rows)
    assert len(led.seen) == ROUNDS
    assert led.outcome is not None
    table = traffic(led.graph, chosen, project(led.graph, chosen), ROUNDS)
    assert counts(led.outcome.links) == counts(table)
    assert sum(use.crossing for use in led.outcome.links) == 0
    again = Led(ALGORITHMS[name], chosen, kept, iterations=ROUNDS)
    assert_identical(ours, again.run())
    assert_identical(led.seen, again.seen)
