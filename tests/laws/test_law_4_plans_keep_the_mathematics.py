"""Every algorithm under every plan without lag gives the parameters of the fused run."""

import random
from dataclasses import fields
from typing import Any

import jax
import numpy as np
import pytest

import motet
from tests.laws.cases import (
    ALGORITHMS,
    DOUBLE,
    PAIRS,
    PLANS,
    assert_close,
    assert_differ,
    assert_identical,
    assert_traffic,
    learner,
    pair,
    run,
    state,
    traced,
)
from tests.sharing import grouped, sharing

exactly = pytest.mark.skipif(not DOUBLE, reason="in double precision alone")


def fused(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    graph, outcome, watcher = pair(name, "anakin-1")
    return learner(graph, outcome), watcher.seen


@pytest.mark.parametrize(("name", "plan"), grouped(PAIRS))
def test_every_plan_equals_the_fused_run(name: str, plan: str) -> None:
    """Law 4, and on the same runs law 6: what goes over the links is what the static table says."""
    graph, outcome, watcher = pair(name, plan)
    whole, metrics = fused(name)
    assert_close(learner(graph, outcome), whole)
    assert_close(watcher.seen, metrics)
    assert_traffic(graph, PLANS[plan], outcome)


@sharing("dqn")
@pytest.mark.parametrize("plan", ["coarse-2", "central-2"])
def test_threads_equal_their_serial_twin(plan: str) -> None:
    graph, threads, _ = pair("dqn", plan)
    serial, _ = run(graph, PLANS[plan], mode="serial")
    assert_identical(learner(graph, threads), learner(graph, serial))


@exactly
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
        assert_close(state(graph, one, name), state(other_graph, two, name))


class HalvedPPO(motet.PPO):
    """Normalises the advantages of either half of the environments by themselves, and says so."""

    def gradient(self, policy: Any, batch: Any) -> Any:
        halves = batch.advantage.reshape(-1, 2, self.num_envs // 2)  # rows of whole time steps
        mean, deviation = halves.mean((0, 2), keepdims=True), halves.std((0, 2), keepdims=True)
        advantage = ((halves - mean) / (deviation + 1e-8)).reshape(-1)
        return jax.grad(self.loss, has_aux=True)(policy, policy, batch, advantage)


@exactly
@sharing("ppo")
def test_statistics_that_a_plan_accepts_per_replica_are_those_of_each_replicas_share() -> None:
    """A plan may trade the exact statistic for independence, if it says so. What it gets is known too: the run of an
    algorithm that takes the statistic of each half on purpose."""
    plan = motet.central(2, per_replica=("gradient",))
    graph = traced(ALGORITHMS["ppo"], plan)
    ours = learner(graph, run(graph, plan)[0])
    options = {each.name: getattr(ALGORITHMS["ppo"], each.name) for each in fields(ALGORITHMS["ppo"])}
    halved = traced(HalvedPPO(**options), motet.anakin())
    assert_close(ours, learner(halved, run(halved, motet.anakin())[0]))
    assert_differ(ours, fused("ppo")[0])


@exactly
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
