"""Phasic policy gradient (Cobbe et al. 2021): a phase of policy and value updates, then, every few iterations, a phase
that teaches the policy's network what the value knows, over all that was seen since the last one."""

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
    body: Any
    policy: Any
    auxiliary: Any
    """A value head on the policy's body."""
    value: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Params
    before: Params
    """The parameters at the start of the last auxiliary phase: the policy must not move from them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array


@dataclass(frozen=True, kw_only=True)
class PhasicPolicyGradient(motet.Algorithm):
    num_envs: int = 8
    num_steps: int = 4
    policy_phase: int = 2
    """Iterations between two auxiliary phases."""
    rate: float = 0.05

    def init(self, key: jax.Array) -> Learner:
        keys = jax.random.split(key, 4)
        params = Params(dense(keys[0], 2, 6), dense(keys[1], 6, 2), dense(keys[2], 6, 1), dense(keys[3], 2, 6, 1))
        return Learner(params, jax.tree.map(jnp.copy, params))

    def weights(self, state: Learner) -> tuple[Params, Params]:
        return state.params, state.before

    def logits(self, params: Params, observation: jax.Array) -> jax.Array:
        return run(params.policy, jnp.tanh(run(params.body, observation)))

    def act(self, policy: Params, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        logits = self.logits(policy, observation)
        action = jax.random.categorical(key, logits).astype(jnp.int32)
        return motet.Decision(action, extras=pick(jax.nn.log_softmax(logits), action))

    def targets(self, weights: tuple[Params, Params], rollout: motet.Rollout) -> Batch:
        value, next_value = (
            run(weights[0].value, each)[..., 0] for each in (rollout.observation, rollout.next_observation)
        )
        delta = rollout.reward + 0.9 * jnp.where(rollout.terminated, 0, next_value) - value

        def step(later: jax.Array, now: Any) -> Any:
            delta, over = now
            advantage = delta + 0.9 * 0.9 * jnp.where(over, 0, later)
            return advantage, advantage

        over = rollout.terminated | rollout.truncated
        advantage = jax.lax.scan(step, jnp.zeros_like(delta[0]), (delta, over), reverse=True)[1]
        return Batch(rollout.observation, rollout.action, rollout.extras, advantage, advantage + value)

    def policy_gradient(self, weights: tuple[Params, Params], batch: Batch) -> Any:
        mean, variance = motet.batch_moments(batch.advantage)
        advantage = (batch.advantage - mean) / jnp.sqrt(variance + 1e-8)

        def loss(params: Params) -> Any:
            log_p = jax.nn.log_softmax(self.logits(params, batch.observation))
            ratio = jnp.exp(pick(log_p, batch.action) - batch.log_prob)
            gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
            entropy = -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))
            return -jnp.mean(gain) - 0.01 * entropy, {"entropy": entropy}

        return jax.grad(loss, has_aux=True)(weights[0])

    def value_gradient(self, weights: tuple[Params, Params], batch: Batch) -> Any:
        def loss(params: Params) -> jax.Array:
            return jnp.mean(jnp.square(run(params.value, batch.observation)[..., 0] - batch.target))

        return jax.grad(loss)(weights[0])

    def auxiliary_gradient(self, weights: tuple[Params, Params], swept: Any) -> Any:
        params, before = weights
        batch, old = swept.items, jax.nn.log_softmax(self.logits(before, swept.items.observation))

        def loss(params: Params) -> Any:
            seen = jnp.tanh(run(params.body, batch.observation))
            kl = jnp.sum(jnp.exp(old) * (old - jax.nn.log_softmax(run(params.policy, seen))), -1)
            errors = [run(params.auxiliary, seen)[..., 0], run(params.value, batch.observation)[..., 0]]
            each = kl + sum(jnp.square(error - batch.target) for error in errors)
            return jnp.mean(jnp.where(swept.held, each, 0)), {"kl": jnp.mean(kl)}

        return jax.grad(loss, has_aux=True)(params)

    def apply(self, state: Learner, gradients: Any) -> Learner:
        return replace(state, params=descend(state.params, gradients, self.rate))

    def freeze(self, state: Learner) -> Learner:
        return replace(state, before=state.params)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        batch = flow.call(self.targets, rollout)
        flow.remember(batch, into=motet.Uniform(self.policy_phase * self.num_steps * self.num_envs))
        with flow.minibatches(batch, epochs=1, count=2) as minibatch:
            gradients, metrics = flow.call(self.policy_gradient, minibatch)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
        with flow.minibatches(batch, epochs=2, count=2) as minibatch:
            flow.apply(self.apply, flow.call(self.value_gradient, minibatch))
        with flow.every(self.policy_phase):
            flow.apply(self.freeze)
            with (
                flow.repeat(2),
                flow.sweep(self.num_steps) as swept,
                flow.minibatches(swept, epochs=1, count=2) as minibatch,
            ):
                gradients, metrics = flow.call(self.auxiliary_gradient, minibatch)
                flow.apply(self.apply, gradients)
                flow.report(metrics)
