"""A recurrent policy's memory travels through rollouts and starts anew with each episode, under every plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from tests.laws.cases import assert_identical, learner, run, traced


@dataclass(frozen=True)
class Clock(motet.Environment):
    """Observations are the number of steps since the reset, which `act` should find in its memory too."""

    observation_space: motet.Box = motet.Box(0, 100, ())
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = 5

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros(()), jnp.zeros(())

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        return state + 1, state + 1, jnp.zeros(()), jnp.zeros((), bool)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    params: jax.Array
    error: jax.Array
    seen: jax.Array


@dataclass(frozen=True, kw_only=True)
class Counter(motet.Algorithm):
    """Counts its own steps in memory and learns how far that is from the observation."""

    num_envs: int = 4

    def init(self, key: jax.Array) -> State:
        return State(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def memory(self) -> jax.Array:
        return jnp.zeros(())

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32), memory=memory + 1, extras=memory - observation)

    def gap(self, params: Any, rollout: motet.Rollout) -> tuple[jax.Array, jax.Array]:
        return jnp.mean(jnp.abs(rollout.extras)), jnp.mean(rollout.observation)

    def apply(self, state: State, error: jax.Array, seen: jax.Array) -> State:
        return State(state.params, state.error + error, state.seen + seen)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=7)
        error, seen = flow.call(self.gap, rollout)
        flow.apply(self.apply, error, seen)


@pytest.mark.parametrize(
    "plan", [motet.anakin(), motet.anakin(2), motet.coarse(2), motet.fine(2)], ids=lambda p: p.name
)
def test_memory_counts_the_steps_of_its_episode(plan: motet.Plan) -> None:
    graph = traced(Counter(), plan, Clock(), iterations=4)
    _, error, seen = learner(graph, run(graph, plan, iterations=4)[0])
    steps = np.arange(28) % 5
    np.testing.assert_allclose(seen, steps.reshape(4, 7).mean(1).sum(), rtol=1e-5)
    assert_identical(error, np.zeros(()))
