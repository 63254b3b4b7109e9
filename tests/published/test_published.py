"""Published algorithms that are no part of motet: each is the same under every plan that takes it.

In double precision, where a difference cannot hide behind rounding; in single precision each learns its task.
"""

from __future__ import annotations

import pytest

import motet
from motet.envs.gymnasium import Gymnasium
from motet.flow.trace import trace
from tests.laws import host_envs
from tests.laws.cases import DOUBLE, assert_close, owned, run
from tests.published.agreement import PLANS, assert_agrees, refusals
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
STATISTIC, NO_REPLAY = "computes a statistic over the batch", "link 'sample' is for no value"
REASONS = {
    "phasic policy gradient": {STATISTIC: 1},
    "random network distillation": {NO_REPLAY: 3},
    "evolution strategy": {STATISTIC: 1, NO_REPLAY: 3},
}
"""Why plans are refused, and how many."""


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize(
    ("name", "plan"), grouped([(name, plan) for name in ALGORITHMS for plan in PLANS], "published ")
)
def test_every_plan_that_takes_it_learns_the_same(name: str, plan: str) -> None:
    if not refusals(ALGORITHMS[name], WALK, plan, ITERATIONS):  # the next test says which these are
        assert_agrees(ALGORITHMS[name], WALK, plan, ITERATIONS)


@pytest.mark.skipif(not DOUBLE, reason="once is enough")
@pytest.mark.parametrize("name", grouped([(name,) for name in ALGORITHMS], "published "))
def test_plans_take_it_or_say_why_not(name: str) -> None:
    found = [refusals(ALGORITHMS[name], WALK, plan, ITERATIONS) for plan in PLANS]
    reasons = REASONS.get(name, {})
    assert sum(map(bool, found)) == sum(reasons.values())
    for reason, count in reasons.items():
        assert sum(any(reason in each for each in why) for why in found) == count


HOST_ENV = Gymnasium(host_envs.Corridor)
ON_HOST = {"batched": motet.batched(workers=2), "sebulba": motet.sebulba(threads=2, lag=0)}


@pytest.mark.skipif(not DOUBLE, reason="in double precision alone")
@pytest.mark.parametrize("plan", ON_HOST)
def test_environments_beside_the_programs_change_nothing(plan: str) -> None:
    """Whole, they are stepped in the thread of the only fragment; here in processes, or by two threads in turn."""
    whole = motet.multi_learner(1)
    cuts = tuple(cut for each in (whole, *ON_HOST.values()) for cut in each.cuts())
    graph = trace(RandomNetworkDistillation(), HOST_ENV, iterations=ITERATIONS, cuts=cuts)
    expected, rows = run(graph, whole, iterations=ITERATIONS)
    found, seen = run(graph, ON_HOST[plan], iterations=ITERATIONS)
    for name in ("learner", "seen", "felt", "sums"):
        assert_close(owned(graph, ON_HOST[plan], found, name), owned(graph, whole, expected, name))
    assert_close(seen.seen, rows.seen)


@pytest.mark.skipif(DOUBLE, reason="once is enough")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_learns(name: str) -> None:
    """An episode has nine steps, each worth at most 1; without a policy about half of that is lost."""
    result = motet.train(ALGORITHMS[name], WALK, motet.anakin(), total_timesteps=4_096, seed=1)
    assert motet.evaluate(result.policy, WALK, episodes=128).mean > 7.2
