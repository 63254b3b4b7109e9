"""Peng's Q(lambda) (Peng and Williams 1994, with a replay as in Daley and Amato 2019): every few iterations all of the
replay is gone through in order, and values are moved towards lambda-returns that were made afresh."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import motet
from tests.published.nets import dense, descend, pick, run


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Any
    target: Any


@dataclass(frozen=True, kw_only=True)
class PengsQ(motet.Algorithm):
    max_lag = None
    num_envs: int = 8
    num_steps: int = 4
    refresh: int = 2
    """Iterations between two passes over the replay."""
    capacity: int = 96
    chunk: int = 6
    """Consecutive steps over which returns are traced."""
    trace: float = 0.7

    def init(self, key: jax.Array) -> Learner:
        params = dense(key, 2, 8, 2)
        return Learner(params, jax.tree.map(jnp.copy, params))

    def weights(self, state: Learner) -> Learner:
        return state

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        key_choice, key_action = jax.random.split(key)
        random = jax.random.randint(key_action, (), 0, 2)
        best = jnp.argmax(run(policy, observation)).astype(jnp.int32)
        return motet.Decision(jnp.where(jax.random.uniform(key_choice) < 0.3, random, best))

    def returns(self, state: Learner, swept: Any) -> Any:
        """A batch with the returns [T, B]: r + discount * ((1 - lambda) * max Q + lambda * the next step's return)."""
        steps = swept.items
        best = jnp.max(run(state.target, steps.next_observation), -1)

        def step(later: Any, now: Any) -> Any:
            reward, best, terminated, truncated, held = now
            total, known = later
            ahead = jnp.where(truncated | ~known, best, (1 - self.trace) * best + self.trace * total)
            total = reward + 0.9 * jnp.where(terminated, 0, ahead)
            return (total, held), total

        now = (steps.reward, best, steps.terminated, steps.truncated, swept.held)
        start = (best[-1], jnp.zeros(best.shape[1:], bool))
        return steps.observation, steps.action, jax.lax.scan(step, start, now, reverse=True)[1], swept.held

    def gradient(self, state: Learner, observation: Any, action: Any, goal: Any, held: Any) -> Any:
        def loss(params: Any) -> Any:
            errors = jnp.square(pick(run(params, observation), action) - goal)
            return jnp.mean(jnp.where(held, errors, 0)), {"held": jnp.mean(held.astype(float))}

        return jax.grad(loss, has_aux=True)(state.params)

    def apply(self, state: Learner, gradients: Any) -> Learner:
        return replace(state, params=descend(state.params, gradients, 0.1))

    def copy(self, state: Learner) -> Learner:
        return replace(state, target=state.params)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        flow.remember(rollout.transitions, into=motet.Uniform(self.capacity))
        with flow.every(self.refresh):
            with flow.sweep(self.chunk) as swept:
                batch = flow.call(self.returns, swept)
                with flow.minibatches(batch, epochs=1, count=2) as minibatch:
                    gradients, metrics = flow.call(self.gradient, *minibatch)
                    flow.apply(self.apply, gradients)
                    flow.report(metrics)
            flow.apply(self.copy)
