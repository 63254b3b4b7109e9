"""Messages and bytes on every link are known before the run.

Every algorithm under every plan is compared with its table where law 4 runs them, and with what readers ask for, by
rules that share nothing with the table (`demand.py`); here are the rest.
"""

import random

import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.plan.plan import Fragment, Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.laws.cases import ALGORITHMS, PLANS, assert_traffic, run, traced
from tests.laws.demand import bytes_of_an_iteration


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


@pytest.mark.parametrize("name", ["ppo", "ppo-scaled", "dqn-prioritised", "sac"])
def test_tables_of_random_plans_hold_what_readers_ask_for(name: str) -> None:
    """Nobody chose these plans: nodes are in one of three fragments by chance, some of them replicated."""
    chance = random.Random(name)
    graph = traced(ALGORITHMS[name], motet.anakin())
    cut = 0
    for _ in range(40):
        nodes: dict[str, list[str]] = {}
        of_state = {state: chance.randrange(3) for state in ("learner", "replay", "env")}  # its writers are together
        for site, node in graph.sites().items():
            where = next((of_state[var] for var in node.writes if var in of_state), chance.randrange(3))
            nodes.setdefault(f"fragment{where}", []).append(site)
        replicas = {fragment: chance.choice([1, 2, 4]) for fragment in nodes}
        plan = Plan({each: Fragment(tuple(names), replicas[each]) for each, names in nodes.items()})
        asked = bytes_of_an_iteration(graph, plan)
        table = {(row.link, row.source, row.target): row.bytes for row in traffic(graph, plan, project(graph, plan))}
        assert table == asked
        cut += bool(asked)
    assert cut > 20


def test_what_readers_ask_for_is_what_one_would_count_by_hand() -> None:
    """PPO on 8 CartPoles, 8 steps of 4 numbers each; networks of 16 units with 2 and 1 outputs."""
    word = np.dtype(jnp.result_type(float)).itemsize
    policy = (4 * 16 + 16 + 16 * 2 + 2 + 4 * 16 + 16 + 16 + 1) * word
    steps = 8 * 8
    # Two observations, log-probability, value and reward of each step; the action is an int32, the flags are bytes.
    rollout = steps * ((4 + 4 + 1 + 1 + 1) * word + 4 + 1 + 1)
    plan = PLANS["coarse-2"]
    assert bytes_of_an_iteration(traced(ALGORITHMS["ppo"], plan), plan) == {
        ("rollout", "actors", "learner"): rollout,
        ("policy", "learner", "actors"): 2 * policy,
    }
    plan, updates = PLANS["central-2"], 4
    found = bytes_of_an_iteration(traced(ALGORITHMS["ppo-unnormalised"], plan), plan)
    assert found["policy", "server", "workers"] == updates * 2 * policy
    assert found["gradient", "workers", "server"] == updates * 2 * policy  # a gradient for each parameter
