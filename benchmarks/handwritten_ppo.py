"""PPO on CartPole as one straight-line JAX program: what motet's fused loop is measured against.

Nothing here comes from motet. It is what one would write by hand for this one algorithm, this one environment and
one device. It draws its random numbers from the same addresses as motet does (`fold_in` of a name, an iteration and
a step), so both compute the same numbers: `tests/laws/test_law_3_fused_equals_handwritten.py`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TOTAL_MASS = CART_MASS + POLE_MASS
MAX_POSITION, MAX_ANGLE = 2.4, math.radians(12)
ACTIONS = 2


@dataclass(frozen=True)
class Settings:
    """The options of a run."""

    num_envs: int = 64
    num_steps: int = 128
    update_epochs: int = 4
    num_minibatches: int = 4
    learning_rate: float = 1e-3
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    max_gradient_norm: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    time_limit: int = 500
    iterations: int = 100
    """The length of the whole run, over which the learning rate falls to 0."""


class State(NamedTuple):
    """Everything that one iteration hands to the next."""

    params: tuple[Any, Any]  # actor, critic
    optimiser: Any
    cart: jax.Array  # [B, 4] position, speed, angle, angular speed
    length: jax.Array  # [B] steps since the last reset; in CartPole also the return


class Batch(NamedTuple):
    """What the loss reads."""

    observation: jax.Array  # [T, B, 4], or [N, 4] in a minibatch
    action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array


class MLP(nn.Module):
    """Dense layers with tanh between them."""

    hidden: tuple[int, ...]
    outputs: int
    scale: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = jnp.result_type(float)
        for width in self.hidden:
            x = jnp.tanh(nn.Dense(width, kernel_init=nn.initializers.orthogonal(np.sqrt(2)), param_dtype=dtype)(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.scale), param_dtype=dtype)(x)


def networks(settings: Settings) -> tuple[MLP, MLP]:
    """The actor and the critic."""
    return MLP(settings.hidden, ACTIONS, 0.01), MLP(settings.hidden, 1, 1.0)


def optimiser(settings: Settings) -> optax.GradientTransformation:
    updates = settings.iterations * settings.update_epochs * settings.num_minibatches

    def rate(count: jax.Array) -> jax.Array:
        return settings.learning_rate * (1 - jnp.minimum(count.astype(float) / updates, 1))

    return optax.chain(optax.clip_by_global_norm(settings.max_gradient_norm), optax.adam(rate, eps=1e-5))


def named(root: jax.Array, name: str) -> jax.Array:
    return jax.random.fold_in(root, zlib.crc32(name.encode()))


def fold_all(key: jax.Array, count: int) -> jax.Array:
    """A key for each of 0, 1, ..., count - 1."""
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))


@jax.vmap
def reset(key: jax.Array) -> jax.Array:
    return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)


def step(cart: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One Euler step of B carts -> (cart [B, 4], terminated [B])."""
    _, speed, angle, spin = cart.T
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (jnp.where(action == 1, FORCE, -FORCE) + POLE_MASS * HALF_LENGTH * spin**2 * sin) / TOTAL_MASS
    spin_rate = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS))
    speed_rate = push - POLE_MASS * HALF_LENGTH * spin_rate * cos / TOTAL_MASS
    cart = cart + TAU * jnp.stack([speed, speed_rate, spin, spin_rate], 1)
    return cart, (jnp.abs(cart[:, 0]) > MAX_POSITION) | (jnp.abs(cart[:, 2]) > MAX_ANGLE)


def init(settings: Settings, root: jax.Array) -> State:
    actor, critic = networks(settings)
    key_actor, key_critic = jax.random.split(named(root, "init/learner"))
    params = actor.init(key_actor, jnp.zeros(4)), critic.init(key_critic, jnp.zeros(4))
    cart = reset(fold_all(named(root, "init/env"), settings.num_envs))
    return State(params, optimiser(settings).init(params), cart, jnp.zeros(settings.num_envs, jnp.int32))


def make_train(settings: Settings, count: int) -> Callable[[State, jax.Array, Any], tuple[State, dict[str, Any]]]:
    """A compiled function of `count` iterations: (state, root key, number of the first) -> (state, metrics)."""
    actor, critic = networks(settings)
    adam = optimiser(settings)
    batch_size, time = settings.num_envs, settings.num_steps

    def judge(params: Any, observation: jax.Array) -> jax.Array:
        return critic.apply(params[1], observation)[..., 0]

    def act_and_step(params: Any, carry: Any, now: Any) -> Any:
        cart, length = carry
        noise, key_env = now
        logits = actor.apply(params[0], cart)
        action = jnp.argmax(logits + noise, -1)
        after, terminated = step(cart, action)
        length = length + 1
        truncated = (length >= settings.time_limit) & ~terminated
        done = terminated | truncated

        def renew() -> jax.Array:
            keys = fold_all(key_env, batch_size)
            fresh = reset(jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys))
            return jnp.where(done[:, None], fresh, after)

        # Most steps end no episode, and fewer cut one off, whose final observation is seen here alone.
        following = jax.lax.cond(jnp.any(done), renew, lambda: after)
        final_value = jax.lax.cond(
            jnp.any(truncated), lambda: judge(params, after), lambda: jnp.zeros_like(after[:, 0])
        )
        finished = jnp.where(done, length, 0)
        row = (cart, action, final_value, terminated, truncated, jnp.sum(finished), jnp.sum(done))
        return (following, jnp.where(done, 0, length)), (row, logits)

    def advantages(value: Any, next_value: Any, terminated: Any, done: Any) -> jax.Array:
        """GAE with rewards of 1; a truncated episode counts on the value of its true final observation."""
        delta = 1 + settings.discount * jnp.where(terminated, 0, next_value) - value
        keep = jnp.where(done, 0, settings.discount * settings.gae_lambda).astype(delta.dtype)

        def back(advantage: jax.Array, now: Any) -> tuple[jax.Array, jax.Array]:
            advantage = now[0] + now[1] * advantage
            return advantage, advantage

        return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, keep), reverse=True, unroll=8)[1]

    def loss(params: Any, batch: Batch) -> jax.Array:
        log_p = jax.nn.log_softmax(actor.apply(params[0], batch.observation))
        ratio = jnp.exp(taken(log_p, batch.action) - batch.log_prob)
        advantage = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        value = judge(params, batch.observation)
        value_loss = 0.5 * jnp.mean(jnp.square(value - batch.target))
        entropy = -jnp.mean(jnp.sum(jnp.exp(log_p) * log_p, -1))
        return policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy

    def update(batch: Batch, carry: Any, rows: jax.Array) -> Any:
        params, moments = carry
        picked = jax.tree.map(lambda leaf: leaf[rows].reshape(-1, *leaf.shape[2:]), batch)
        value, gradient = jax.value_and_grad(loss)(params, picked)
        change, moments = adam.update(gradient, moments, params)
        return (optax.apply_updates(params, change), moments), value

    def iteration(root: jax.Array, state: State, number: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        key_act, key_env, key_shuffle = (
            jax.random.fold_in(named(root, name), number) for name in ("act", "env", "permute")
        )
        # Gumbel noise for every choice of the rollout, drawn at once: cheaper than a small draw in each step.
        keys_act = jax.vmap(partial(fold_all, count=batch_size))(fold_all(key_act, time))
        noise = jax.vmap(jax.vmap(lambda key: jax.random.gumbel(key, (ACTIONS,))))(keys_act)
        (cart, length), (row, logits) = jax.lax.scan(
            partial(act_and_step, state.params), (state.cart, state.length), (noise, fold_all(key_env, time))
        )
        observation, action, final_value, terminated, truncated, finished, ended = row
        # One pass over the whole rollout is cheaper than a small one in each step.
        value = judge(state.params, observation)
        following = jnp.concatenate([value[1:], judge(state.params, cart)[None]])
        next_value = jnp.where(truncated, final_value, following)
        advantage = advantages(value, next_value, terminated, terminated | truncated)
        log_prob = taken(jax.nn.log_softmax(logits), action)
        batch = Batch(observation, action, log_prob, advantage, advantage + value)
        # Minibatches are sets of time steps: whole rows are gathered, not single ones.
        shuffles = jax.vmap(lambda key: jax.random.permutation(key, time))(
            fold_all(key_shuffle, settings.update_epochs)
        )
        rows = shuffles.reshape(settings.update_epochs * settings.num_minibatches, -1)
        (params, moments), losses = jax.lax.scan(partial(update, batch), (state.params, state.optimiser), rows)
        metrics = {"episodes": jnp.sum(ended), "returns": jnp.sum(finished), "loss": jnp.mean(losses)}
        return State(params, moments, cart, length), metrics

    @partial(jax.jit, donate_argnums=0)
    def train(state: State, root: jax.Array, first: jax.Array) -> tuple[State, dict[str, jax.Array]]:
        numbers = first + jnp.arange(count, dtype=jnp.uint32)
        return jax.lax.scan(partial(iteration, root), state, numbers)

    return train


def taken(log_p: jax.Array, action: jax.Array) -> jax.Array:
    """[..., actions], [...] -> the entry of each action."""
    return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]
