"""Environments as functions of B states at once, and a step of them in which episodes end and begin again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import handwritten_ppo as cart
from benchmarks.handwritten_ppo import fold_all, named

PREFILL = 2**31
"""The number of the first round of a prefill."""


class World(NamedTuple):
    """An environment."""

    reset: Callable[[jax.Array], jax.Array]  # keys [B] -> states [B, n]
    step: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]
    """states, actions [B] -> states, rewards [B], terminated [B]"""
    observe: Callable[[jax.Array], jax.Array]  # states [B, n] -> observations [B, m]
    observation_size: int
    limit: int


class Now(NamedTuple):
    """B environments in the middle of episodes."""

    state: jax.Array  # [B, n]
    length: jax.Array  # [B] steps since the last reset


class Steps(NamedTuple):
    """What one step of all environments was."""

    observation: jax.Array  # [B, m]
    action: jax.Array  # [B, ...]
    reward: jax.Array  # [B]
    terminated: jax.Array  # [B]
    truncated: jax.Array  # [B]
    next_observation: jax.Array  # [B, m] the true one, not that of the episode that begins


def cartpole(limit: int) -> World:
    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        after, terminated = cart.step(state, action)
        return after, jnp.ones(len(after)), terminated

    return World(cart.reset, step, lambda state: state, 4, limit)


def pendulum(limit: int) -> World:
    bound = np.array([np.pi, 1.0])

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        angle, speed = state.T
        torque = jnp.clip(action[:, 0], -2, 2)
        turned = jnp.mod(angle + np.pi, 2 * np.pi) - np.pi
        cost = turned**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = jnp.clip(speed + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8, 8)
        return jnp.stack([angle + 0.05 * speed, speed], 1), -cost, jnp.zeros(len(cost), bool)

    def observe(state: jax.Array) -> jax.Array:
        angle, speed = state.T
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed], 1)

    reset = jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-bound, maxval=bound))
    return World(reset, step, observe, 3, limit)


def begin(world: World, root: jax.Array, envs: int) -> Now:
    return Now(world.reset(fold_all(named(root, "init/env"), envs)), jnp.zeros(envs, jnp.int32))


def advance(world: World, now: Now, action: jax.Array, key: jax.Array) -> tuple[Now, Steps, jax.Array]:
    """One step of all environments, and which of them have begun a new episode."""
    after, reward, terminated = world.step(now.state, action)
    length = now.length + 1
    truncated = (length >= world.limit) & ~terminated
    done = terminated | truncated
    steps = Steps(world.observe(now.state), action, reward, terminated, truncated, world.observe(after))
    fresh = world.reset(jax.vmap(lambda each: jax.random.fold_in(each, 1))(fold_all(key, len(length))))
    return Now(jnp.where(done[:, None], fresh, after), jnp.where(done, 0, length)), steps, done


def address(root: jax.Array, node: str, *rounds: int) -> jax.Array:
    """The key of a node in a round of an iteration."""
    key = named(root, node)
    for number in rounds:
        key = jax.random.fold_in(key, np.uint32(number))
    return key
