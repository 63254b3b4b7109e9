"""Published algorithms that are no part of motet: each is the same under every plan that takes it.

In double precision, where a difference cannot hide behind rounding; in single precision each learns its task.
"""

from __future__ import annotations

import pytest

import motet
from tests.laws.cases import DOUBLE
from tests.published.agreement import assert_agrees, refusals
from tests.published.curious import RandomNetworkDistillation
from tests.published.evolution import EvolutionStrategy
from tests.published.munchausen import RecurrentMunchausenDQN
from tests.published.peng import PengsQ
from tests.published.phasic import PhasicPolicyGradient
from tests.published.walk import Walk
from tests.sharing import grouped

WALK = Walk()
ITERATIONS = 4
ALGORITHMS: dict[str, motet.Algorithm] = {
    "phasic policy gradient": PhasicPolicyGradient(),
    "random network distillation": RandomNetworkDistillation(),
    "Peng's Q": PengsQ(),
    "recurrent Munchausen DQN": RecurrentMunchausenDQN(),
    "evolution strategy": EvolutionStrategy(),
}
PLANS = ("anakin-2", "multi_learner-4", "coarse-2", "fine-2", "central-2", "pearl-2")
REFUSED = {
    ("phasic policy gradient", "central-2"): "node 'policy_gradient' computes a statistic over the batch",
    ("evolution strategy", "central-2"): "node 'gradient' computes a statistic over the batch",
    ("random network distillation", "pearl-2"): "there is no replay",
    ("evolution strategy", "pearl-2"): "there is no replay",
}
ACCEPTED = [(name, plan) for name in ALGORITHMS for plan in PLANS if (name, plan) not in REFUSED]


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize(("name", "plan"), grouped(ACCEPTED, "published "))
def test_every_plan_that_takes_it_learns_the_same(name: str, plan: str) -> None:
    assert_agrees(ALGORITHMS[name], WALK, plan, ITERATIONS)


@pytest.mark.skipif(not DOUBLE, reason="once is enough")
@pytest.mark.parametrize("name", grouped([(name,) for name in ALGORITHMS], "published "))
def test_plans_take_it_or_say_why_not(name: str) -> None:
    found = {plan: refusals(ALGORITHMS[name], WALK, plan, ITERATIONS) for plan in PLANS}
    assert {plan for plan, why in found.items() if not why} == {plan for each, plan in ACCEPTED if each == name}
    assert sum(not why for why in found.values()) >= 3
    for plan, why in found.items():
        assert not why or any(REFUSED[name, plan] in each for each in why)


@pytest.mark.skipif(DOUBLE, reason="once is enough")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns(name: str) -> None:
    """An episode has nine steps, each worth at most 1; without a policy about half of that is lost."""
    result = motet.train(ALGORITHMS[name], WALK, motet.anakin(), total_timesteps=4_096, seed=1)
    assert motet.evaluate(result.policy, WALK, episodes=128).mean > 7.2
