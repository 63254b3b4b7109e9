"""An evolution strategy (Salimans et al. 2017): each environment plays with parameters of its own, in mirrored pairs,
and the mean moves towards those that did better than others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import motet
from tests.published.nets import dense, run


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Any
    seed: jax.Array  # [] uint32: where this generation's noise comes from


@dataclass(frozen=True, kw_only=True)
class EvolutionStrategy(motet.Algorithm):
    num_envs: int = 8
    num_steps: int = 9
    deviation: float = 0.3
    rate: float = 0.5

    def init(self, key: jax.Array) -> Learner:
        return Learner(dense(key, 2, 4, 2), jax.random.bits(key))

    def policy(self, state: Learner) -> Learner:
        return state

    def noise(self, state: Learner, index: jax.Array) -> Any:
        """What environment `index` adds to the parameters; its neighbour adds the opposite."""
        key = jax.random.fold_in(jax.random.key(state.seed), index // 2)
        leaves, treedef = jax.tree.flatten(state.params)
        sign = 1.0 - 2.0 * (index % 2)
        keys = jax.random.split(key, len(leaves))
        drawn = [sign * jax.random.normal(each, leaf.shape) for each, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(treedef, drawn)

    def act(
        self, policy: Learner, memory: Any, observation: Any, key: jax.Array, *, index: jax.Array
    ) -> motet.Decision:
        noise = self.noise(policy, index)
        mine = jax.tree.map(lambda param, each: param + self.deviation * each, policy.params, noise)
        return motet.Decision(jnp.argmax(run(mine, observation)).astype(jnp.int32), extras=index)

    def exploit(self, policy: Learner, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.argmax(run(policy.params, observation)).astype(jnp.int32))

    def gradient(self, state: Learner, rollout: motet.Rollout) -> Any:
        fitness = jnp.sum(rollout.reward, 0)
        worth = self.worth(fitness)

        def each(worth: jax.Array, index: jax.Array) -> Any:
            return jax.tree.map(lambda leaf: worth * leaf, self.noise(state, index))

        gradients = jax.tree.map(lambda rows: jnp.mean(rows, 0), jax.vmap(each)(worth, rollout.extras[0]))
        return gradients, {"fitness": jnp.mean(fitness)}

    def worth(self, fitness: jax.Array) -> jax.Array:
        """[B]: from -1/2 for the worst of all environments to 1/2 for the best."""
        return motet.batch_ranks(fitness) / (self.num_envs - 1) - 0.5

    def apply(self, state: Learner, gradients: Any, key: jax.Array) -> Learner:
        scale = self.rate / self.deviation
        params = jax.tree.map(lambda param, gradient: param + scale * gradient, state.params, gradients)
        return Learner(params, jax.random.bits(key))

    def loop(self, flow: motet.Flow) -> None:
        gradients, metrics = flow.call(self.gradient, flow.unroll(self.act, steps=self.num_steps))
        flow.apply(self.apply, gradients)
        flow.report(metrics)
