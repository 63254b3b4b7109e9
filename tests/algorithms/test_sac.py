"""Soft actor-critic: its densities, its temperature, and both kinds of actions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import motet
from motet.algorithms.soft import squashed_sample
from motet.flow.spaces import Box, Discrete, Space
from tests.algorithms.test_continuous import OBSERVATIONS, N, bound, keys, steps


def test_density_of_squashed_actions_is_that_of_a_change_of_variables() -> None:
    policy = jnp.asarray([0.3, -1.0, -0.5, 0.4])
    action, log_prob = map(np.asarray, jax.vmap(squashed_sample, (None, 0))(policy, keys(50)))
    inside = (np.abs(action) < 0.9999).all(-1)
    raw = np.arctanh(action.astype(np.float64)[inside])
    normal = scipy.stats.norm.logpdf(raw, [0.3, -1.0], np.exp([-0.5, 0.4])).sum(-1)
    jacobian = np.log(1 - np.square(action.astype(np.float64)[inside])).sum(-1)
    np.testing.assert_allclose(log_prob[inside], normal - jacobian, rtol=1e-3, atol=1e-3)


def test_density_of_squashed_actions_integrates_to_one() -> None:
    """E[1 / p(a)] over the actions drawn is the size of the set they are drawn from: from -1 to 1."""
    _, log_prob = jax.vmap(squashed_sample, (None, 0))(jnp.asarray([0.2, -0.2]), keys(20_000))
    np.testing.assert_allclose(np.mean(np.exp(-np.asarray(log_prob))), 2.0, rtol=0.02)


def test_density_is_finite_where_tanh_rounds_to_one() -> None:
    action, log_prob = squashed_sample(jnp.asarray([30.0, -3.0]), jax.random.key(0))
    assert action[0] == 1
    assert np.isfinite(log_prob)


@pytest.mark.parametrize(("target_entropy", "direction"), [(5.0, 1), (-5.0, -1)])
def test_temperature_rises_where_entropy_is_too_low(target_entropy: float, direction: int) -> None:
    algorithm = bound(motet.SAC, target_entropy=target_entropy)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    gradients, metrics = jax.jit(algorithm.gradient)(algorithm.weights(state), steps(), keys())
    assert -5 < metrics["entropy"] < 5
    after = jax.jit(algorithm.apply)(state, gradients)
    change = after.online.params.log_temperature - state.online.params.log_temperature
    assert np.sign(change) == direction


def test_a_given_temperature_stays() -> None:
    algorithm = bound(motet.SAC, temperature=0.3, learn_temperature=False)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    gradients, metrics = jax.jit(algorithm.gradient)(algorithm.weights(state), steps(), keys())
    np.testing.assert_allclose(metrics["temperature"], 0.3, rtol=1e-6)
    assert (
        jax.jit(algorithm.apply)(state, gradients).online.params.log_temperature == state.online.params.log_temperature
    )


def test_critics_follow_the_soft_value_of_what_goes_on() -> None:
    algorithm = bound(motet.SAC, discount=0.9)
    params, target = algorithm.weights(jax.jit(algorithm.init)(jax.random.key(0)))
    batch = steps((True, *[False] * (N - 1)))
    policy = algorithm.actor(params.actor, batch.next_observation)
    action, log_prob = jax.vmap(squashed_sample)(policy, keys())
    critic = algorithm.choice.critic
    one, other = (np.asarray(critic(each, batch.next_observation, action)) for each in target)
    later = np.minimum(one, other) - 0.5 * np.asarray(log_prob)
    goal = np.asarray(batch.reward) + 0.9 * np.where(np.arange(N) == 0, 0, later)
    found = jax.jit(algorithm.goal)(params.actor, target, jnp.asarray(0.5), batch, keys())
    np.testing.assert_allclose(found, goal, rtol=1e-5)


def test_discrete_expectations_are_over_all_actions() -> None:
    algorithm = bound(motet.SAC, Discrete(3))
    target = jax.jit(algorithm.init)(jax.random.key(0)).target
    observation = steps().observation
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(N, 3)))
    value, entropy = algorithm.choice.outlook(logits, target, observation, keys())
    p = np.asarray(jax.nn.softmax(logits))
    least = np.minimum(*(np.asarray(algorithm.choice.critic(each, observation)) for each in target))
    np.testing.assert_allclose(value, (p * least).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(entropy, scipy.stats.entropy(p, axis=-1), rtol=1e-5)
    action = jnp.asarray([0, 2, 1, 1, 0, 2])
    first, _ = algorithm.choice.taken(target, observation, action)
    np.testing.assert_allclose(first, np.asarray(algorithm.choice.critic(target[0], observation))[np.arange(N), action])


def test_random_actions_are_held_within_an_episode() -> None:
    algorithm = bound(motet.SAC, Box(-1.0, 1.0, (1,)), random_hold=10)
    policy = algorithm.policy(jax.jit(algorithm.init)(jax.random.key(0)))

    def step(memory: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        decision = algorithm.act(policy, memory, jnp.zeros(3), key)
        return decision.memory, decision.action[0]

    _, actions = jax.lax.scan(step, algorithm.memory(), keys(1_000))
    assert actions[0] != 0  # a new episode has a new action
    np.testing.assert_allclose(np.mean(np.diff(actions) != 0), 0.1, atol=0.03)


@pytest.mark.parametrize("actions", [Box(-1.0, 1.0, (2, 1)), Discrete(3)])
def test_both_kinds_of_actions_train_and_their_policies_survive_the_disk(actions: Space, tmp_path: Any) -> None:
    from tests.algorithms.test_every_space import Counting

    algorithm = motet.SAC(num_envs=2, gradient_steps=1, batch_size=4, buffer_size=64, learning_starts=8, hidden=(8,))
    result = motet.train(algorithm, Counting(OBSERVATIONS, actions), motet.anakin(), total_timesteps=16,
                         run_dir=tmp_path / "run")  # fmt: skip
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))
    loaded = motet.Policy.load(tmp_path / "run", motet.SAC)
    action = loaded(np.zeros(3))
    assert (action.shape, action.dtype) == (actions.aval.shape, actions.aval.dtype)
    np.testing.assert_array_equal(action, result.policy(np.zeros(3)))
