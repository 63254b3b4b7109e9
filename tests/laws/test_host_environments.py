"""Laws 4 to 7 and 11 for environments that are not written in JAX: Gymnasium's CartPole, in threads and processes."""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.envs.gymnasium import Gymnasium
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from tests.laws import host_envs
from tests.laws.cases import (
    ALGORITHMS,
    Outcome,
    Silent,
    assert_close,
    assert_identical,
    assert_traffic,
    lags,
    learner,
    run,
    state,
    traced,
)
from tests.laws.tally import ENVS, EPOCHS, LIMIT, NAMES, ROUNDS, STEPS, Tally
from tests.sharing import grouped

PLANS: dict[str, Plan] = {
    "batched-0": motet.batched(workers=0),
    "batched-2": motet.batched(workers=2),
    "fine-2": motet.fine(2),
    "coarse-2": motet.coarse(2),
    "coarse-2-workers": motet.coarse(2, workers=2),
    "multi_learner-2": motet.multi_learner(2),
    "sebulba-0": motet.sebulba(actors=1, threads=2, lag=0),
    "central-2": motet.central(2),
    "pearl-host": motet.pearl(2, lag=0, replay="host"),
}
PAIRS = [
    *(("ppo", plan) for plan in PLANS if plan not in ("coarse-2", "central-2", "pearl-host")),
    ("a2c", "central-2"),
    ("dqn", "coarse-2"),
    ("dqn", "sebulba-0"),
    ("dqn-prioritised", "pearl-host"),
]


@functools.cache
def pair(name: str, plan: str) -> tuple[Graph, Outcome, Silent]:
    graph = traced(ALGORITHMS[name], PLANS[plan], Gymnasium("CartPole-v1"))
    return (graph, *run(graph, PLANS[plan]))


@pytest.mark.parametrize(("name", "plan"), grouped(PAIRS, "hosted-"))
def test_every_plan_gives_the_same_parameters(name: str, plan: str) -> None:
    """Laws 4 and 6: where the environments are stepped changes neither what is learned nor what was predicted."""
    graph, outcome, watcher = pair(name, plan)
    reference, first, seen = pair(name, "batched-0")
    assert_close(learner(graph, outcome), learner(reference, first))
    assert_close(watcher.seen, seen.seen)
    assert_traffic(graph, PLANS[plan], outcome)


def test_lag_is_exact_and_runs_are_identical_whatever_the_delays() -> None:
    """Law 5: acting overlaps learning, and yet every policy is exactly one iteration old."""
    plan = motet.sebulba(threads=2, lag=1, workers=1)
    graph = traced(ALGORITHMS["ppo"], plan, Gymnasium("CartPole-v1"), iterations=5)
    chance = random.Random(3)
    calm, _ = run(graph, plan, iterations=5)
    shaken, _ = run(graph, plan, iterations=5, delay=lambda who: time.sleep(0.03 * chance.random()))
    serial, _ = run(graph, plan, iterations=5, mode="serial")
    assert_identical(learner(graph, calm), learner(graph, shaken))
    assert_identical(learner(graph, calm), learner(graph, serial))
    assert set(lags(shaken)["policy"]) == {1}


@pytest.mark.parametrize("plan", ["batched-2", "fine-2", "coarse-2-workers", "multi_learner-2"])
def test_every_step_is_learned_from_in_its_iteration_as_often_as_there_are_epochs(plan: str) -> None:
    """Law 7, with numbers that tell every step from every other one."""
    graph = traced(Tally(), PLANS[plan], Gymnasium(host_envs.Slow), iterations=ROUNDS)
    outcome, seen = run(graph, PLANS[plan], iterations=ROUNDS)
    np.testing.assert_array_equal(state(graph, outcome, "learner").seen, EPOCHS * _numbers_of_each_iteration())
    assert sum(row[0] for row in seen.seen) == ENVS * (STEPS * ROUNDS // LIMIT)


def _numbers_of_each_iteration() -> np.ndarray:
    """How often each number comes up in each iteration, of environments that are stepped here one by one."""
    from motet.flow.host import Opening

    assert (host_envs.NAMES, host_envs.LIMIT) == (NAMES, LIMIT)
    counts = np.zeros((ROUNDS, NAMES * LIMIT), int)
    for index in range(ENVS):
        env = host_envs.Numbered()
        env.reset(seed=Opening(0, ENVS, seed=1).seed_of(index))
        for step in range(STEPS * ROUNDS):
            _, number, _, truncated, _ = env.step(np.int64(0))
            counts[step // STEPS, int(number)] += 1
            if truncated:
                env.reset()
    return counts


@dataclass(frozen=True, kw_only=True)
class Bootstrap(Tally):
    """Adds up the advantages that GAE with a constant value of 10 gives."""

    def measure(self, params: Any, rollout: Any) -> Any:  # type: ignore[override]
        from motet.algorithms.returns import gae

        value = jax.numpy.full_like(rollout.reward, 10.0)
        advantage = gae(rollout.reward, value, value, rollout.terminated, rollout.truncated, 1.0, 1.0)
        return jax.numpy.stack([jax.numpy.mean(advantage), jax.numpy.mean(rollout.next_observation[..., 1])])

    def apply(self, state: Any, means: jax.Array) -> Any:
        return replace(state, seen=state.seen.at[0, :2].set(means))

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.apply, flow.call(self.measure, flow.unroll(self.act, steps=STEPS)))


@pytest.mark.parametrize(("limit", "ends", "advantage"), [(4, 1000, 2.5), (1000, 4, -7.5)])
def test_truncation_bootstraps_on_the_true_final_observation(limit: int, ends: int, advantage: float) -> None:
    """Law 11. Four steps of reward 1 and a value of 10 everywhere: cut off, the value of the end counts; terminated,
    it does not. The last observation is the old episode's own in both cases."""
    env = Gymnasium(functools.partial(host_envs.Corridor, limit, ends))
    for plan in (motet.batched(workers=2), motet.coarse(2)):
        graph = traced(Bootstrap(), plan, env, iterations=1)
        outcome, _ = run(graph, plan, iterations=1)
        means = state(graph, outcome, "learner").seen[0, :2]
        np.testing.assert_allclose(means, [advantage, np.mean([1, 2, 3, 4]) / limit], rtol=1e-6)


def test_whoever_is_ready_first_goes_on() -> None:
    """One thread for four groups of environments gives what four threads give, whoever is slow."""
    env = Gymnasium(host_envs.Slow)
    states = []
    for together in (False, True):
        plan = motet.sebulba(threads=4, workers=1, lag=1, first_ready=together)
        graph = traced(Tally(), plan, env, iterations=4)
        outcome, _ = run(graph, plan, iterations=4)
        states.append(learner(graph, outcome))
    assert_identical(*states)
