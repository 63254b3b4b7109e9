"""Every algorithm under every plan without lag gives the parameters of the fused run."""

import random

import numpy as np
import pytest

import motet
from motet.engine.run import gather
from tests.laws.cases import (
    ALGORITHMS,
    PAIRS,
    PLANS,
    assert_close,
    assert_identical,
    assert_traffic,
    learner,
    pair,
    run,
    traced,
)
from tests.sharing import grouped, sharing


def fused(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    graph, outcome, watcher = pair(name, "anakin-1")
    return learner(graph, outcome), watcher.seen


@pytest.mark.parametrize(("name", "plan"), grouped(PAIRS))
def test_every_plan_equals_the_fused_run(name: str, plan: str) -> None:
    """Law 4, and on the same runs law 6: what goes over the links is what the static table says."""
    graph, outcome, watcher = pair(name, plan)
    state, metrics = fused(name)
    assert_close(learner(graph, outcome), state)
    assert_close(watcher.seen, metrics)
    assert_traffic(graph, PLANS[plan], outcome)


@sharing("dqn")
@pytest.mark.parametrize("plan", ["coarse-2", "central-2"])
def test_threads_equal_their_serial_twin(plan: str) -> None:
    graph, threads, _ = pair("dqn", plan)
    serial, _ = run(graph, PLANS[plan], mode="serial")
    assert_identical(learner(graph, threads), learner(graph, serial))


def test_uncompiled_run_equals_the_compiled_one() -> None:
    plan = PLANS["coarse-2"]
    graph = traced(ALGORITHMS["a2c"], plan, iterations=1)
    compiled, _ = run(graph, plan, iterations=1)
    plain, _ = run(graph, plan, iterations=1, mode="serial", compiled=False)
    assert_close(learner(graph, compiled), learner(graph, plain))


@sharing("dqn")
def test_every_state_is_the_same_wherever_it_lives() -> None:
    """Not only the learner: environments and replay agree too, gathered from their replicas."""
    graph, one, _ = pair("dqn", "anakin-1")
    other_graph, two, _ = pair("dqn", "coarse-2")
    for name in ("env", "replay", "step.observation"):
        assert_close(gather(graph, one, name), gather(other_graph, two, name))


@sharing("ppo")
def test_per_replica_statistics_are_accepted_by_name_and_differ() -> None:
    """A plan may trade the exact statistic for independence, if it says so."""
    plan = motet.central(2, per_replica=("gradient",))
    graph = traced(ALGORITHMS["ppo"], plan)
    outcome, _ = run(graph, plan)
    state, _ = fused("ppo")
    ours = learner(graph, outcome)
    assert all(np.isfinite(leaf).all() for leaf in ours)
    assert any(not np.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(ours, state, strict=True))


@pytest.mark.parametrize(("name", "seed"), grouped([("ppo", 0), ("ppo", 1), ("dqn", 1), ("dqn", 2)]))
def test_random_cuts_equal_the_fused_run(name: str, seed: int) -> None:
    """Nobody chose these plans: each node is in one of three fragments by chance."""
    chance = random.Random(seed)
    sites = traced(ALGORITHMS[name], motet.anakin()).sites()
    nodes: dict[str, list[str]] = {}
    for site in sites:
        nodes.setdefault(f"fragment{chance.randrange(3)}", []).append(site)
    plan = motet.Plan({fragment: motet.Fragment(tuple(names)) for fragment, names in nodes.items()})
    graph = traced(ALGORITHMS[name], plan)
    outcome, _ = run(graph, plan, mode="threads" if seed else "serial")
    assert_close(learner(graph, outcome), fused(name)[0])
