"""States of the author's own, whole or one for each environment, and keys for updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.plan.check import violations
from tests.flow.probe import Learner, Probe
from tests.laws.cases import run
from tests.published.agreement import PLANS, assert_agrees, states, traced
from tests.published.walk import Walk

WALK = Walk()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Seen:
    mean: jax.Array
    count: jax.Array


class Scales(Probe):
    """Rewards are compared with their mean so far (whole), and traced over time (for each environment)."""

    def no_reward(self) -> Seen:
        return Seen(jnp.zeros(()), jnp.zeros((), jnp.int32))

    def trace_of_one(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key)

    def fade(self, params: Any, rollout: motet.Rollout, seen: Seen, traces: jax.Array) -> Any:
        def step(trace: jax.Array, reward: jax.Array) -> Any:
            trace = 0.9 * trace + reward - seen.mean
            return trace, trace

        last, rewards = jax.lax.scan(step, traces, rollout.reward)
        return motet.Transitions(rollout.observation, rollout.action, rewards, (), ()), last, jnp.mean(rollout.reward)

    def see(self, seen: Seen, mean: jax.Array) -> Seen:
        count = seen.count + 1
        return Seen(seen.mean + (mean - seen.mean) / count, count)

    def keep(self, old: jax.Array, new: jax.Array) -> jax.Array:
        return new

    def loop(self, flow: motet.Flow) -> None:
        seen = flow.state("seen", self.no_reward)
        traces = flow.state("traces", self.trace_of_one, per_environment=True)
        rollout = flow.unroll(self.act, steps=self.steps)
        batch, last, mean = flow.call(self.fade, rollout, seen, traces)
        flow.update(traces, self.keep, last)
        flow.update(seen, self.see, mean)
        self.learn(flow, batch)


@pytest.mark.parametrize("plan", ["anakin-2", "fine-2", "central-2"])
def test_states_are_the_same_under_every_plan(plan: str) -> None:
    assert_agrees(Scales(), WALK, plan, iterations=3)


def test_a_state_of_each_environment_has_a_first_value_of_its_own() -> None:
    graph = traced(Scales(), WALK, 3)
    assert graph.variables["traces"].axes == (0,) and graph.variables["seen"].axes == (None, None)
    (first,) = (node for node in graph.nodes() if node.name == "init/traces")
    assert first.site == "keep"


def test_a_whole_state_has_one_owner_and_a_cut_one_may_have_several() -> None:
    graph = traced(Scales(), WALK, 3)
    outcome, _ = run(graph, PLANS["central-2"], iterations=3)
    assert int(states(graph, PLANS["central-2"], outcome)["seen"].count) == 3
    assert [store["traces"][0].shape for store in outcome.variables["workers"]] == [(4,), (4,)]
    apart = motet.Plan({"a": motet.Fragment(("see",), replicas=2), "b": motet.Fragment(("*",))})
    found = violations(motet.trace(Scales(), WALK, iterations=1, cuts=apart.cuts()), apart)
    assert any("state 'seen' belongs to all environments together" in each for each in found)


class Keyed(Probe):
    """Adds noise to its parameters with every update."""

    def apply(self, state: Learner, gradient: jax.Array, key: jax.Array) -> Learner:  # type: ignore[override]
        noise = jax.random.normal(key, gradient.shape)
        return super().apply(state, gradient + noise)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        with flow.repeat(2):
            self.learn(flow, rollout)


@pytest.mark.parametrize("plan", ["anakin-2", "central-2"])
def test_an_update_has_the_same_key_wherever_it_runs(plan: str) -> None:
    assert_agrees(Keyed(), WALK, plan, iterations=2)


def test_updates_have_keys_of_their_own() -> None:
    class Steady(Keyed):
        def apply(self, state: Learner, gradient: jax.Array, key: jax.Array) -> Learner:  # type: ignore[override]
            return Learner(
                state.params.at[:2].set(state.params[1:]).at[2].set(jax.random.normal(key, 2)), state.updates
            )

    graph = traced(Steady(), WALK, 2)
    params = states(graph, motet.anakin(), run(graph, motet.anakin(), iterations=2)[0])["learner"].params
    assert len(np.unique(params)) == 6  # the last three updates


def attempt(loop: Any) -> str:
    """What is said about a loop that begins with `loop`."""

    class Mine(Scales):
        def loop(self, flow: motet.Flow) -> None:
            loop(self, flow)
            self.learn(flow, flow.unroll(self.act, steps=2))

    with pytest.raises(motet.BadAlgorithm) as caught:
        traced(Mine(), WALK, 1)
    return str(caught.value)


def test_mistakes_are_named() -> None:
    assert "never calls flow.update for the state 'seen'" in attempt(lambda a, flow: flow.state("seen", a.no_reward))
    assert "names a state 'policy'" in attempt(lambda a, flow: flow.state("policy", a.no_reward))
    assert "names a state 'a b'" in attempt(lambda a, flow: flow.state("a b", a.no_reward))
    assert "flow.update changes what flow.state made" in attempt(lambda a, flow: flow.update("seen", a.see))

    def other(a: Scales, flow: motet.Flow) -> None:
        flow.update(flow.state("seen", a.no_reward), lambda seen: seen.mean)

    assert "must return seen as it came" in attempt(other)
    assert "'seen' is a state" in attempt(lambda a, flow: flow.state("seen", a.no_reward).mean)
