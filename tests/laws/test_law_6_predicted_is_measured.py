"""Messages and bytes on every link are known before the run."""

import pytest

from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.laws.cases import ALGORITHMS, ITERATIONS, PAIRS, PLANS, run, traced


@pytest.mark.parametrize(("name", "plan"), PAIRS)
def test_traffic_equals_the_static_table(name: str, plan: str) -> None:
    graph = traced(ALGORITHMS[name], PLANS[plan])
    predicted = {
        (row.link, row.source, row.target): (row.messages * ITERATIONS, row.bytes * ITERATIONS)
        for row in traffic(graph, PLANS[plan], project(graph, PLANS[plan]))
    }
    outcome, _ = run(graph, PLANS[plan])
    measured = {(row.link, row.source, row.target): (row.messages, row.bytes) for row in outcome.flown}
    assert measured == predicted
    assert bool(predicted) == (len(PLANS[plan].fragments) > 1)


def test_a_fine_cut_talks_every_step_and_a_coarse_one_every_iteration() -> None:
    rates = {}
    for name in ("coarse-2", "fine-2"):
        graph = traced(ALGORITHMS["ppo"], PLANS[name])
        table = traffic(graph, PLANS[name], project(graph, PLANS[name]))
        rates[name] = {row.rate for row in table}
    assert rates["coarse-2"] == {"iteration"}
    assert "step" in rates["fine-2"]
