"""Munchausen DQN (Vieillard et al. 2020) with a recurrent network (Kapturowski et al. 2019): sequences from a replay,
each with the memory that the policy had at its start; the network sees the reward of the step before too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import motet
from tests.published.nets import dense, descend, pick, run

SIZE = 4
"""Numbers that are remembered."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Any
    target: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Seen:
    """What a decision was made from, besides the observation."""

    memory: jax.Array
    reward: jax.Array


@dataclass(frozen=True, kw_only=True)
class RecurrentMunchausenDQN(motet.Algorithm):
    max_lag = None
    num_envs: int = 8
    num_steps: int = 4
    sequence: int = 5
    batch_size: int = 16
    temperature: float = 0.1
    munchausen: float = 0.9

    def init(self, key: jax.Array) -> Learner:
        keys = jax.random.split(key, 4)
        gates = [dense(each, SIZE + 3, SIZE) for each in keys[:3]]
        params = (gates, dense(keys[3], SIZE, 2))
        return Learner(params, jax.tree.map(jnp.copy, params))

    def weights(self, state: Learner) -> Learner:
        return state

    def memory(self) -> jax.Array:
        return jnp.zeros(SIZE)

    def step(self, params: Any, memory: jax.Array, observation: jax.Array, reward: jax.Array) -> Any:
        """A gated recurrent unit and a layer above it -> the new memory, and values [..., 2]."""
        (reset, update, candidate), head = params
        seen = jnp.concatenate([observation, reward[..., None]], -1)
        both = jnp.concatenate([seen, memory], -1)
        gate = jax.nn.sigmoid(run(update, both))
        new = jnp.tanh(run(candidate, jnp.concatenate([seen, jax.nn.sigmoid(run(reset, both)) * memory], -1)))
        memory = (1 - gate) * memory + gate * new
        return memory, run(head, memory)

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array, *, reward: jax.Array) -> motet.Decision:
        after, values = self.step(policy, memory, observation, reward)
        action = jax.random.categorical(key, values / self.temperature).astype(jnp.int32)
        return motet.Decision(action, after, Seen(memory, reward))

    def sequences(self, params: Any, items: Any) -> Any:
        """Values [N, L + 1, 2] of the observations of sequences and of what came after the last."""
        steps, seen = items
        over = steps.terminated | steps.truncated
        told = jnp.concatenate([seen.reward, jnp.where(over[:, -1:], 0, steps.reward[:, -1:])], 1)
        looks = jnp.concatenate([steps.observation, steps.next_observation[:, -1:]], 1)

        def step(memory: jax.Array, now: Any) -> Any:
            observation, reward, over = now
            memory, values = self.step(params, memory, observation, reward)
            return jnp.where(over[:, None], 0, memory), values

        ends = jnp.concatenate([over, jnp.zeros_like(over[:, -1:])], 1)
        rows = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (looks, told, ends))
        return jnp.swapaxes(jax.lax.scan(step, seen.memory[:, 0], rows)[1], 0, 1)

    def gradient(self, state: Learner, items: Any) -> Any:
        steps, _ = items
        aimed = self.sequences(state.target, items)
        log_p = jax.nn.log_softmax(aimed / self.temperature)
        soft = jnp.sum(jnp.exp(log_p) * (aimed - self.temperature * log_p), -1)[:, 1:]
        bonus = self.munchausen * jnp.clip(self.temperature * pick(log_p[:, :-1], steps.action), -1, 0)
        # A sequence that goes over the end of an episode has another's observation behind it: its value does not count.
        over = steps.terminated | steps.truncated
        goal = steps.reward + bonus + 0.9 * jnp.where(over, 0, soft)

        def loss(params: Any) -> Any:
            values = pick(self.sequences(params, items)[:, :-1], steps.action)
            errors = jnp.square(values - goal)
            return jnp.mean(jnp.where(steps.truncated, 0, errors)), {"value": jnp.mean(values)}

        return jax.grad(loss, has_aux=True)(state.params)

    def apply(self, state: Learner, gradients: Any) -> Learner:
        params = descend(state.params, gradients, 0.05)
        target = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state.target, params)
        return replace(state, params=params, target=target)

    def loop(self, flow: motet.Flow) -> None:
        flow.prefill(2 * self.num_steps * self.num_envs)
        rollout = flow.unroll(self.act, steps=self.num_steps)
        flow.remember((rollout.transitions, rollout.extras), into=motet.Uniform(256, sequence=self.sequence))
        sample = flow.sample(self.batch_size)
        with flow.minibatches(sample.items, epochs=1, count=2) as minibatch:
            gradients, metrics = flow.call(self.gradient, minibatch)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
