"""Random network distillation (Burda et al. 2019): a reward for what a predictor has not learned yet, scaled by how
much of it there usually is; observations are normalised by those seen before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import motet
from tests.published.nets import dense, descend, pick, run


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    policy: Any
    value: Any
    predictor: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Params
    target: Any
    """A random network that is never changed."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """What was seen: means of values and of their squares, each iteration counting as much."""

    count: jax.Array  # []
    mean: jax.Array
    square: jax.Array

    def scale(self) -> jax.Array:
        return jnp.sqrt(jnp.maximum(self.square - self.mean**2, 1e-4))

    def merge(self, mean: jax.Array, square: jax.Array) -> Moments:
        count = self.count + 1
        return Moments(count, self.mean + (mean - self.mean) / count, self.square + (square - self.square) / count)


@dataclass(frozen=True, kw_only=True)
class RandomNetworkDistillation(motet.Algorithm):
    num_envs: int = 8
    num_steps: int = 4
    share: float = 0.5
    """The share of steps that the predictor learns from."""

    def init(self, key: jax.Array) -> Learner:
        keys = jax.random.split(key, 4)
        params = Params(dense(keys[0], 2, 6, 2), dense(keys[1], 2, 6, 1), dense(keys[2], 2, 6, 3))
        return Learner(params, dense(keys[3], 2, 6, 3))

    def policy(self, state: Learner) -> Any:
        return state.params.policy

    def weights(self, state: Learner) -> Learner:
        return state

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jax.random.categorical(key, run(policy, observation)).astype(jnp.int32))

    # Two states of its own: what observations were like, and what the discounted sums of curiosity were like.

    def unseen(self) -> Moments:
        return Moments(jnp.zeros(()), jnp.zeros(2), jnp.ones(2))

    def unfelt(self) -> Moments:
        return Moments(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))

    def calm(self) -> jax.Array:
        return jnp.zeros(())

    def curiosity(self, state: Learner, rollout: motet.Rollout, seen: Moments, sums: jax.Array) -> Any:
        """How wrong the predictor is about each step, [T, B], and the discounted sum of that so far, [B]."""
        looks = self.look(seen, rollout.next_observation)
        wrong = jnp.mean(jnp.square(run(state.params.predictor, looks) - run(state.target, looks)), -1)

        def step(total: jax.Array, now: jax.Array) -> Any:
            total = 0.9 * total + now
            return total, total

        last, totals = jax.lax.scan(step, sums, wrong)
        moments = jnp.mean(totals), jnp.mean(totals**2)
        return looks, wrong, last, *moments

    def look(self, seen: Moments, observation: jax.Array) -> jax.Array:
        shape = (1,) * (observation.ndim - 1) + seen.mean.shape
        return jnp.clip((observation - seen.mean.reshape(shape)) / seen.scale().reshape(shape), -5, 5)

    def advantages(self, state: Learner, rollout: motet.Rollout, wrong: jax.Array, felt: Moments) -> jax.Array:
        value, after = (
            run(state.params.value, each)[..., 0] for each in (rollout.observation, rollout.next_observation)
        )
        return rollout.reward + wrong / felt.scale() + 0.9 * jnp.where(rollout.terminated, 0, after) - value

    def observed(self, state: Learner, rollout: motet.Rollout) -> Any:
        return jnp.mean(rollout.observation, (0, 1)), jnp.mean(rollout.observation**2, (0, 1))

    def gradient(self, state: Learner, rollout: motet.Rollout, looks: Any, advantage: Any, keys: jax.Array) -> Any:
        """`keys` decide which steps the predictor learns from."""
        chosen = jax.vmap(jax.random.uniform)(keys) < self.share

        def loss(params: Params) -> Any:
            log_p = jax.nn.log_softmax(run(params.policy, rollout.observation))
            gain = jnp.mean(pick(log_p, rollout.action) * advantage)
            value = run(params.value, rollout.observation)[..., 0]
            goal = jax.lax.stop_gradient(value) + advantage
            wrong = jnp.mean(jnp.square(run(params.predictor, looks) - run(state.target, looks)), -1)
            curiosity = jnp.mean(jnp.where(chosen, wrong, 0)) / self.share
            return jnp.mean(jnp.square(value - goal)) - gain + curiosity, {"curiosity": curiosity}

        return jax.grad(loss, has_aux=True)(state.params)

    def apply(self, state: Learner, gradients: Params) -> Learner:
        return replace(state, params=descend(state.params, gradients, 0.05))

    def keep(self, old: jax.Array, new: jax.Array) -> jax.Array:
        return new

    def loop(self, flow: motet.Flow) -> None:
        seen, felt = flow.state("seen", self.unseen), flow.state("felt", self.unfelt)
        sums = flow.state("sums", self.calm, per_environment=True)
        rollout = flow.unroll(self.act, steps=self.num_steps)
        looks, wrong, last, *moments = flow.call(self.curiosity, rollout, seen, sums)
        flow.update(sums, self.keep, last)
        flow.update(felt, Moments.merge, *moments)
        flow.update(seen, Moments.merge, *flow.call(self.observed, rollout))
        advantage = flow.call(self.advantages, rollout, wrong, felt)
        batch = motet.Rollout(rollout.observation, rollout.action, (), (), (), (), ())
        with flow.minibatches((batch, looks, advantage), epochs=2, count=2) as minibatch:
            gradients, metrics = flow.call(self.gradient, *minibatch)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
