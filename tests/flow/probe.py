"""The smallest algorithm that acts and learns something: tests change its loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import motet


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: jax.Array  # [3, 2]
    updates: jax.Array  # []


@dataclass(frozen=True, kw_only=True)
class Probe(motet.Algorithm):
    """A linear policy gradient, without a network."""

    num_envs: int = 8
    steps: int = 4

    def init(self, key: jax.Array) -> Learner:
        return Learner(0.1 * jax.random.normal(key, (3, 2)), jnp.zeros((), jnp.int32))

    def logits(self, params: jax.Array, observation: jax.Array) -> jax.Array:
        ones = jnp.ones((*observation.shape[:-1], 1), observation.dtype)
        return jnp.concatenate([observation, ones], -1) @ params

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        action = jax.random.categorical(key, self.logits(policy, observation))
        return motet.Decision(action.astype(jnp.int32))

    def gradient(self, params: Any, batch: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Of anything that has observations, actions and rewards."""

        def loss(params: Any) -> jax.Array:
            log_p = jax.nn.log_softmax(self.logits(params, batch.observation))
            chosen = jnp.take_along_axis(log_p, batch.action[..., None], -1)[..., 0]
            return -jnp.mean(chosen * batch.reward)

        value, gradient = jax.value_and_grad(loss)(params)
        return gradient, {"loss": value}

    def apply(self, state: Learner, gradient: jax.Array) -> Learner:
        return Learner(state.params - 0.1 * gradient, state.updates + 1)

    def learn(self, flow: motet.Flow, batch: Any) -> None:
        """One update."""
        gradient, metrics = flow.call(self.gradient, batch)
        flow.apply(self.apply, gradient)
        flow.report(metrics)

    def loop(self, flow: motet.Flow) -> None:
        self.learn(flow, flow.unroll(self.act, steps=self.steps))
