"""Methods may be called what motet calls its own nodes and variables."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import motet
from motet.flow.calls import OWN_NAMES
from tests.flow.probe import Probe
from tests.published.agreement import assert_agrees, traced
from tests.published.walk import Walk


class Named:
    """A method of any name."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, params: Any, rollout: motet.Rollout) -> Any:
        return {self.__name__: jnp.mean(rollout.reward)}


class Everything(Probe):
    """Calls a method by each name that motet uses itself: of variables, links, nodes and kinds."""

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=2)
        for name in sorted(OWN_NAMES):
            flow.report(flow.call(Named(name), rollout))
        flow.remember(rollout.transitions, into=motet.Prioritised(64))
        sample = flow.sample(8)
        errors = flow.call(lambda params, sample: jnp.abs(sample.items.reward), sample)
        self.learn(flow, sample.items)
        flow.reprioritize(sample, errors)


def test_a_method_may_be_called_as_something_of_ours() -> None:
    graph = motet.trace(Everything(), Walk(), iterations=1)
    sites = graph.sites()
    assert {sites[f"{name}_call"].kind for name in OWN_NAMES - {"call"}} == {"call"}
    assert {name: sites[name].kind for name in ("act", "env", "sample", "apply", "remember", "reprioritize")} == {
        name: name for name in ("act", "env", "sample", "apply", "remember", "reprioritize")
    }
    assert {"policy", "replay", "priorities", "learner"} <= set(graph.variables)
    motet.check(graph, motet.pearl(lag=0))


class Confusing(Probe):
    """Calls methods by the names of variables."""

    def policy(self, state: Any) -> Any:
        return state.params

    def priorities(self, params: Any, rollout: motet.Rollout) -> Any:
        return {"priorities": jnp.mean(rollout.reward)}

    def replay(self, params: Any, rollout: motet.Rollout) -> Any:
        return {"replay": jnp.mean(rollout.observation)}

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.report(flow.call(self.priorities, rollout))
        flow.report(flow.call(self.replay, rollout))
        self.learn(flow, rollout)


@pytest.mark.parametrize("plan", ["coarse-2", "central-2"])
def test_they_run_under_plans(plan: str) -> None:
    assert_agrees(Confusing(), Walk(), plan, iterations=2)


def test_ordinary_names_stay_as_they_are() -> None:
    assert list(traced(Probe(), Walk(), 1).sites()) == ["act", "env", "gradient", "apply"]
