"""What `act` may ask for besides: the environment's number, and the reward and action of the step before."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.run import gather
from motet.envs.gymnasium import Gymnasium
from motet.runs.policy import Policy
from tests.flow.probe import Learner, Probe
from tests.laws import host_envs
from tests.laws.cases import run
from tests.laws.cases import traced as traced_for
from tests.published.agreement import PLANS, assert_agrees, traced
from tests.published.walk import Walk

WALK = Walk()
ITERATIONS = 3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Told:
    index: jax.Array
    reward: jax.Array
    action: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Before:
    """The end of the rollout before, of one environment."""

    reward: jax.Array
    action: jax.Array
    over: jax.Array
    index: jax.Array


class Watchful(Probe):
    """Remembers what it was told, and compares it with what happened."""

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, action: Any, index: Any, reward: Any):
        decision = super().act(policy, memory, observation, key)
        shifted = jnp.where(index % 3 == 0, 1 - decision.action, decision.action)
        return motet.Decision(shifted, memory, Told(index, reward, action))

    def errors(self, params: Any, rollout: motet.Rollout, before: Before) -> dict[str, jax.Array]:
        def shifted(first: jax.Array, values: jax.Array, over: jax.Array) -> jax.Array:
            """The step before's, 0 where an episode begins."""
            return jnp.where(over, 0, jnp.concatenate([first[None], values[:-1]]))

        ends = rollout.terminated | rollout.truncated
        over = jnp.concatenate([before.over[None], ends[:-1]])
        told = rollout.extras
        return {
            "reward": jnp.mean(jnp.abs(told.reward - shifted(before.reward, rollout.reward, over))),
            "action": jnp.mean(jnp.abs(told.action - shifted(before.action, rollout.action, over)).astype(float)),
            "told": jnp.mean(jnp.abs(told.reward)),
            "over": jnp.mean(over.astype(float)),
        }

    def blank(self) -> Before:
        return Before(jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.ones((), bool), jnp.full((), -1, jnp.int32))

    def end(self, before: Before, rollout: motet.Rollout) -> Before:
        over = rollout.terminated[-1] | rollout.truncated[-1]
        return Before(rollout.reward[-1], rollout.action[-1], over, rollout.extras.index[-1])

    def loop(self, flow: motet.Flow) -> None:
        before = flow.state("before", self.blank, per_environment=True)
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.report(flow.call(self.errors, rollout, before))
        flow.update(before, self.end, rollout)
        self.learn(flow, rollout)


class WatchfulWithMemory(Watchful):
    """The same with a memory, which counts the episode's steps."""

    def memory(self) -> jax.Array:
        return jnp.zeros(3)

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, action: Any, index: Any, reward: Any):
        decision = super().act(policy, memory, observation, key, action=action, index=index, reward=reward)
        return motet.Decision(decision.action, memory + reward, decision.extras)


def assert_told_the_truth(rows: list[np.ndarray], sums: int) -> None:
    reward, action, told, over = np.asarray(rows)[:, sums : sums + 4].T[[2, 0, 3, 1]]
    np.testing.assert_array_equal(reward, 0)
    np.testing.assert_array_equal(action, 0)
    assert (told > 0).all() and (over > 0).any()


@pytest.mark.parametrize("plan", ["anakin-2", "fine-2", "central-2"])
@pytest.mark.parametrize("algorithm", [Watchful(), WatchfulWithMemory()], ids=lambda each: type(each).__name__)
def test_what_is_told_is_right_however_environments_are_cut(algorithm: Probe, plan: str) -> None:
    assert_agrees(algorithm, WALK, plan, ITERATIONS)
    graph = traced(algorithm, WALK, ITERATIONS)
    outcome, watcher = run(graph, PLANS[plan], iterations=ITERATIONS)
    assert_told_the_truth(watcher.seen, sums=3)
    np.testing.assert_array_equal(gather(graph, outcome, "before").index, np.arange(8))


class Patient(Watchful):
    """May act with an older policy. What it replaces it reads: of what nobody reads, no memory is used again."""

    max_lag = 1

    def end(self, before: Before, rollout: motet.Rollout) -> Before:
        after = super().end(before, rollout)
        return replace(after, reward=after.reward + 0.0 * before.reward)


def test_what_was_sent_is_not_given_away_by_who_runs_ahead() -> None:
    """The actors own `before` and replace it while the learner, which is behind them, has yet to read it."""
    fragments = {"actors": motet.Fragment(("act", "env", "end"), replicas=2), "learner": motet.Fragment(("*",))}
    plan = motet.Plan(fragments, {"policy": motet.Link(1)})
    graph = traced(Patient(), WALK, ITERATIONS)

    def delay(name: str) -> None:
        time.sleep(0.5 if name == "learner" else 0.0)

    _, watcher = run(graph, plan, iterations=ITERATIONS, delay=delay)
    assert_told_the_truth(watcher.seen, sums=3)


@pytest.mark.parametrize("plan", [motet.batched(workers=0), motet.coarse(2), motet.fine(2)], ids=lambda p: p.name)
def test_host_environments_tell_the_same(plan: motet.Plan) -> None:
    env = Gymnasium(host_envs.Numbered)
    graph = traced_for(Flat(), plan, env, iterations=ITERATIONS)
    outcome, watcher = run(graph, plan, iterations=ITERATIONS)
    assert_told_the_truth(watcher.seen, sums=4)
    np.testing.assert_array_equal(gather(graph, outcome, "before").index, np.arange(8))


class Flat(Watchful):
    """For observations of one number."""

    def init(self, key: jax.Array) -> Learner:
        return Learner(0.1 * jax.random.normal(key, (2, 2)), jnp.zeros((), jnp.int32))


class Repeats(Probe):
    """Does what paid: the action before again if its reward was above a half, the other one if not; 1 at first."""

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, reward: Any, action: Any):
        return motet.Decision(jnp.where(reward == 0, 1, jnp.where(reward > 0.5, action, 1 - action)))


class ByNumber(Probe):
    """Environment 0 goes left, all others right."""

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, index: Any):
        return motet.Decision((index > 0).astype(jnp.int32))


def bound(algorithm: Probe) -> Policy:
    spec = motet.Spec(WALK.observation_space, WALK.action_space, 1)
    mine = algorithm.bind(spec)
    return Policy(mine, mine.policy(mine.init(jax.random.key(0))))


def test_a_policy_alone_is_told_the_reward_and_knows_its_action() -> None:
    policy, here = bound(Repeats()), np.zeros(2, np.float32)
    assert policy(here) == 1
    assert policy(here, reward=0.9) == 1
    assert policy(here, reward=0.1) == 0
    assert policy(here, reward=0.9) == 0
    with pytest.raises(ValueError, match="looks at the reward of the step before"):
        policy(here)
    policy.reset()
    assert policy(here) == 1


def test_a_policy_alone_is_one_of_its_environments() -> None:
    policy, here = bound(ByNumber()), np.zeros(2, np.float32)
    assert policy(here) == 0
    policy.reset(index=3)
    assert policy(here, explore=True) == 1


@dataclass(frozen=True)
class Payer(motet.Environment):
    """Pays 1 for action 1 and 0.25 for action 0, for four steps."""

    observation_space: motet.Box = motet.Box(-2, 2, (2,))
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = 4

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros(()), jnp.zeros(2)

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        return state, jnp.zeros(2), jnp.where(action == 1, 1.0, 0.25), jnp.zeros((), bool)


def test_an_evaluation_tells_a_policy_what_training_does() -> None:
    assert motet.evaluate(bound(Repeats()), Payer(), episodes=3).returns.tolist() == [4, 4, 4]
    returns = motet.evaluate(bound(ByNumber()), Payer(), episodes=10).returns.tolist()
    assert returns == [1, 4, 4, 4, 4, 4, 4, 4, 1, 4]  # of 8 environments


def test_an_evaluation_on_host_environments_begins_anew_with_each_episode() -> None:
    """An observation of Numbered is the episode's name times the limit, plus the steps so far; so is the reward after
    it."""
    env = Gymnasium(host_envs.Numbered)

    class Notes(Repeats):
        def exploit(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, reward: Any, action: Any):
            jax.debug.callback(lambda *now: told.append(now), observation[0], reward, action, ordered=False)
            return self.act(policy, memory, observation, key, reward=reward, action=action)

    told: list[Any] = []
    spec = motet.Spec(env.observation_space, env.action_space, 1)
    mine = Notes().bind(spec)
    motet.evaluate(Policy(mine, mine.policy(mine.init(jax.random.key(0)))), env, episodes=2)
    jax.effects_barrier()
    seen, reward, action = np.asarray(told, float).T
    first = seen % host_envs.LIMIT == 0
    assert 0 < first.sum() < len(first)
    np.testing.assert_array_equal(reward[first], 0)
    np.testing.assert_array_equal(action[first], 0)
    np.testing.assert_allclose(reward[~first], seen[~first] - 1, rtol=1e-6)


class Greedy(Probe):
    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, weather: Any):
        return motet.Decision(jnp.zeros((), jnp.int32))


def test_what_nothing_gives_is_refused() -> None:
    with pytest.raises(
        motet.BadAlgorithm, match=r"Greedy.act takes policy.*index, reward, action; it also wants 'weather'"
    ):
        traced(Greedy(), WALK, 1)
