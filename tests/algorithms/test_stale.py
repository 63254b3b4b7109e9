"""Algorithms whose weights are older than the state that they change, and steps that never came back."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.flow.algorithm import Spec
from motet.flow.values import Drawn, Transitions

N = 6
TD3 = motet.TD3(num_envs=2, batch_size=N, hidden=(4,), policy_delay=2)
DQN = motet.DQN(num_envs=2, batch_size=N, hidden=(4,), prioritised=True)


def transitions(env: motet.Environment, action: jax.Array, **more: jax.Array) -> Transitions:
    observation = jax.random.normal(jax.random.key(1), (N, *env.observation_space.aval.shape))
    ends = jnp.zeros(N, bool)
    return Transitions(observation, action, jnp.arange(N) * 1.0, ends, observation + 0.1, truncated=ends, **more)


def pendulum() -> tuple[motet.TD3, Transitions]:
    env = motet.make("Pendulum-v1")
    bound = TD3.bind(Spec(env.observation_space, env.action_space, 10))
    return bound, transitions(env, jnp.full((N, 1), 0.3))  # type: ignore[arg-type]


@functools.cache
def compiled() -> tuple[motet.TD3, Any, Any]:
    """TD3, its gradient on one batch as a function of the weights, and what it makes of one."""
    td3, batch = pendulum()
    keys = jax.random.split(jax.random.key(2), N)
    return td3, jax.jit(lambda weights: td3.gradient(weights, batch, keys)), jax.jit(td3.apply)


@pytest.mark.parametrize("stale", [0, 1, 2, 3])
def test_td3_moves_its_actor_whenever_a_gradient_of_it_was_computed(stale: int) -> None:
    """Whether it is due is decided once: with the weights of the gradient, however old they are."""
    td3, gradient, apply = compiled()
    states = [td3.init(jax.random.key(0))]
    moved, computed = [], []
    for _ in range(8):
        old = states[max(0, len(states) - 1 - stale)]
        gradients, _ = gradient(td3.weights(old))
        states.append(apply(states[-1], gradients))
        computed.append(any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradients.mean.actor)))
        before, after = (jax.tree.leaves(state.actor.params) for state in states[-2:])
        moved.append(any(np.any(a != b) for a, b in zip(before, after, strict=True)))
    assert moved == computed
    assert any(moved) and not all(moved)


def test_td3_takes_the_mean_of_the_pieces_that_computed_one() -> None:
    """Two workers whose weights differ: one computed the actor's gradient, the other did not."""
    td3, batch = pendulum()
    keys = jax.random.split(jax.random.key(2), N)
    state = td3.apply(
        td3.init(jax.random.key(0)), td3.gradient(td3.weights(td3.init(jax.random.key(0))), batch, keys)[0]
    )
    due, _ = td3.gradient(td3.weights(state), batch, keys)
    idle = jax.tree.map(jnp.zeros_like, due)
    mixed = jax.tree.map(lambda a, b: (a + b) / 2, due, idle)
    assert float(due.share) == 1 and float(mixed.share) == 0.5
    whole, half = td3.apply(state, due), td3.apply(state, mixed)
    for a, b in zip(jax.tree.leaves(whole.actor), jax.tree.leaves(half.actor), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_steps_that_never_came_back_keep_no_priority() -> None:
    env = motet.make("CartPole-v1")
    bound = DQN.bind(Spec(env.observation_space, env.action_space, 10))
    valid = jnp.arange(N) % 2 == 0
    items = transitions(env, jnp.zeros(N, jnp.int32), valid=valid, discount=jnp.full(N, 0.9))  # type: ignore[arg-type]
    sample = Drawn(items, jnp.zeros((N, 2), jnp.int32), jnp.ones(N))
    _, _, priorities = bound.gradient(bound.weights(bound.init(jax.random.key(0))), sample)
    assert (np.asarray(priorities)[~valid] == 0).all()
    assert (np.asarray(priorities)[valid] > 0).all()
