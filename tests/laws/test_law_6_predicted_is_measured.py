"""Messages and bytes on every link are known before the run.

Every algorithm under every plan is compared with its table where law 4 runs them; here are the rest.
"""

import motet
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.laws.cases import ALGORITHMS, PLANS, assert_traffic, run, traced


def test_lagging_links_carry_what_the_table_says() -> None:
    plan = motet.coarse(2, lag=2)
    graph = traced(ALGORITHMS["dqn"], plan, iterations=5)
    outcome, _ = run(graph, plan, iterations=5)
    assert_traffic(graph, plan, outcome, iterations=5)


def test_a_fine_cut_talks_every_step_and_a_coarse_one_every_iteration() -> None:
    rates = {}
    for name in ("coarse-2", "fine-2"):
        graph = traced(ALGORITHMS["ppo"], PLANS[name])
        table = traffic(graph, PLANS[name], project(graph, PLANS[name]))
        rates[name] = {row.rate for row in table}
    assert rates["coarse-2"] == {"iteration"}
    assert "step" in rates["fine-2"]
