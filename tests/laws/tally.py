"""An algorithm from outside of the package that keeps count of what it is given to learn from, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import motet

STEPS, ENVS, EPOCHS, ROUNDS = 4, 8, 3, 5
NAMES, LIMIT = 256, 3
"""Each episode has one of so many names, and so many steps; each of them has a number of its own."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Count:
    params: jax.Array
    updates: jax.Array  # []
    seen: jax.Array  # [iterations, numbers] how often each was learned from


@dataclass(frozen=True, kw_only=True)
class Tally(motet.Algorithm):
    """Learns nothing; keeps count, in each iteration, of every step that it is given to learn from."""

    max_lag = None
    num_envs: int = ENVS
    minibatches: int = 2

    def init(self, key: jax.Array) -> Count:
        return Count(jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.zeros((ROUNDS, NAMES * LIMIT)))

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32))

    def measure(self, params: Any, observation: jax.Array, reward: jax.Array) -> jax.Array:
        """The share of each number in a batch of a power of two: exact in every precision, and so are its means."""
        same = (observation[:, 0] == reward).astype(float)  # both are of one step, or neither counts
        return jnp.mean(jax.nn.one_hot(reward.astype(int), NAMES * LIMIT, dtype=float) * same[:, None], 0)

    def apply(self, state: Count, shares: jax.Array) -> Count:
        iteration = state.updates // (EPOCHS * self.minibatches)
        seen = state.seen.at[iteration].add(shares * (STEPS * ENVS // self.minibatches))
        return Count(state.params, state.updates + 1, seen)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        batch = (rollout.observation, rollout.reward)
        with flow.minibatches(batch, epochs=EPOCHS, count=self.minibatches) as (observation, reward):
            flow.apply(self.apply, flow.call(self.measure, observation, reward))
