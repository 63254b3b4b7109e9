"""An attribute or item of a handle is a handle on that part, and travels by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.flow.probe import Probe
from tests.published.agreement import PLANS, assert_agrees, traced
from tests.published.walk import Walk

WALK = Walk()


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    more: Any
    nothing: Any = ()


class ByParts(Probe):
    """Takes its batch apart in every way, and puts what it needs together again."""

    def batch(self, params: Any, rollout: motet.Rollout) -> Batch:
        more = {"scale": jnp.mean(rollout.reward), "pair": Pair(rollout.reward, [rollout.observation])}
        return Batch(rollout.observation, rollout.action, rollout.reward, more)

    def gradient(self, params: Any, observation: Any, action: Any, reward: Any, scale: Any) -> Any:  # type: ignore[override]
        nothing = jnp.zeros(())
        return super().gradient(params, Batch(observation, action, reward * scale, nothing))

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        batch = flow.call(self.batch, rollout)
        assert batch.nothing == ()
        assert batch.reward is batch.reward
        again = batch.more["pair"]
        with flow.minibatches((again.right[0], batch.action, again[0]), epochs=1, count=2) as minibatch:
            gradient, metrics = flow.call(self.gradient, *minibatch, batch.more["scale"])
            flow.apply(self.apply, gradient)
            flow.report(metrics)


class OfASample(Probe):
    """Parts of what a replay gives."""

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.remember(rollout.transitions, into=motet.Uniform(128))
        items = flow.sample(16).items
        self.learn(flow, motet.Transitions(items.observation, items.action, items.reward, (), ()))


@pytest.mark.parametrize("plan", ["coarse-2-sharded", "fine-2"])
def test_parts_are_the_same_under_every_plan(plan: str) -> None:
    assert_agrees(ByParts(), WALK, plan, iterations=2)


@pytest.mark.parametrize("plan", ["central-2", "pearl-2"])
def test_parts_of_a_sample_are_the_same_under_every_plan(plan: str) -> None:
    assert_agrees(OfASample(), WALK, plan, iterations=2)


def test_a_mean_is_still_a_mean_when_it_is_taken_out() -> None:
    graph = traced(ByParts(), WALK, 2)
    whole, part = graph.variables["batch"], graph.variables["batch.more.scale"]
    assert part.axes == (None,) and part.combine == ("mean",) and part.partial and whole.partial


def test_only_the_part_that_is_read_is_sent() -> None:
    graph = traced(OfASample(), WALK, 2)
    rows = {row.link: row for row in traffic(graph, PLANS["pearl-2"], project(graph, PLANS["pearl-2"]))}
    parts = ("observation", "action", "reward")
    assert rows["sample"].bytes == sum(graph.variables[f"sample.items.{part}"].nbytes() for part in parts)
    assert rows["sample"].bytes < graph.variables["sample.items"].nbytes()


def test_a_part_is_placed_with_the_whole_and_not_by_plans() -> None:
    graph = traced(ByParts(), WALK, 2)
    part = next(node for node in graph.nodes() if node.name == "batch.action")
    assert part.site == "batch" and "batch.action" not in graph.sites()


def attempt(use: Any) -> str:
    """What is said about a loop that does `use` with the handles of a batch."""

    class Mine(ByParts):
        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=self.steps)
            use(flow, flow.call(self.batch, rollout), rollout)

    with pytest.raises((motet.BadAlgorithm, AttributeError, TypeError)) as caught:
        traced(Mine(), WALK, 1)
    return str(caught.value)


def test_parts_that_are_not_there_are_named_with_those_that_are() -> None:
    said = attempt(lambda flow, batch, rollout: batch.advantage)
    assert "'batch' is on Batch" in said and "no part 'advantage'" in said and "It has observation, action" in said
    assert "no part 'b'. It has pair, scale" in attempt(lambda flow, batch, rollout: batch.more["b"])
    assert "It has left, right, 0, 1" in attempt(lambda flow, batch, rollout: batch.more["pair"][2])
    assert "'rollout.reward' is on float" in attempt(lambda flow, batch, rollout: rollout.reward.shape)


def test_handles_are_not_gone_through() -> None:
    assert "cannot unpack" in attempt(lambda flow, batch, rollout: [a for a, b in [batch]])


def test_a_part_of_what_a_closed_loop_made_is_refused() -> None:
    def use(flow: motet.Flow, batch: Any, rollout: Any) -> None:
        with flow.minibatches(batch.reward, epochs=1, count=2) as rewards:
            inside = flow.call(lambda params, reward: {"mean": jnp.mean(reward)}, rewards)
        flow.report(inside["mean"])

    assert "outside the loop 'minibatches'" in attempt(use)
