"""The prefill runs all that has a part in what is remembered, and nothing that learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from tests.flow.probe import Probe
from tests.published.agreement import assert_agrees, traced
from tests.published.walk import Walk

WALK = Walk()


@dataclass(frozen=True, kw_only=True)
class Relabels(Probe):
    """Remembers rewards that a method made of the real ones, and a state of its own."""

    learning_starts: int = 96

    def relabel(self, params: Any, transitions: motet.Transitions, seen: jax.Array) -> motet.Transitions:
        return replace(transitions, reward=transitions.reward * 10 + seen[None])

    def aside(self, params: Any, rollout: motet.Rollout) -> Any:
        return {"aside": jnp.mean(rollout.reward)}

    def count(self, seen: jax.Array, reward: jax.Array) -> jax.Array:
        return seen + jnp.sum(reward, 0)

    def loop(self, flow: motet.Flow) -> None:
        seen = flow.state("seen", lambda: jnp.zeros(()), per_environment=True)
        flow.prefill(self.learning_starts)
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.report(flow.call(self.aside, rollout))
        relabelled = flow.call(self.relabel, rollout.transitions, seen)
        flow.update(seen, self.count, rollout.reward)
        flow.remember(relabelled, into=motet.Uniform(256))
        self.learn(flow, flow.sample(16).items)


def test_calls_between_acting_and_remembering_run_in_the_prefill() -> None:
    graph = traced(Relabels(), WALK, 2)
    (prefill,) = (item for item in graph.root.body if item.name == "prefill")
    assert [item.name for item in prefill.body] == ["unroll", "relabel", "count", "remember"]


@pytest.mark.parametrize("plan", ["anakin-2", "central-2", "pearl-2", "pearl-host"])
def test_what_is_remembered_before_the_first_iteration_is_relabelled_too(plan: str) -> None:
    assert_agrees(Relabels(), WALK, plan, iterations=2)


def test_learning_does_not_happen_in_the_prefill() -> None:
    class LearnsFirst(Relabels):
        def loop(self, flow: motet.Flow) -> None:
            flow.prefill(self.learning_starts)
            rollout = flow.unroll(self.act, steps=self.steps)
            self.learn(flow, rollout)
            flow.remember(rollout.transitions, into=motet.Uniform(256))

    graph = traced(LearnsFirst(), WALK, 1)
    (prefill,) = (item for item in graph.root.body if item.name == "prefill")
    assert [item.name for item in prefill.body] == ["unroll", "remember"]


def test_a_prefill_without_a_replay_is_refused() -> None:
    class Forgets(Probe):
        def loop(self, flow: motet.Flow) -> None:
            flow.prefill(64)
            super().loop(flow)

    with pytest.raises(motet.BadAlgorithm, match=r"flow.prefill needs flow.unroll and flow.remember directly"):
        traced(Forgets(), WALK, 1)
