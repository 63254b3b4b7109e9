"""What IMPALA reduces to, and what it makes of rollouts that another policy made."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.algorithms.impala import IMPALA
from motet.flow.algorithm import Spec
from motet.flow.values import Rollout
from tests.laws.cases import assert_close

T, B = 7, 5
SHARED = ("discount", "value_weight", "entropy_weight", "hidden", "activation")


def rollout(chance: np.random.Generator, log_prob: jax.Array | None = None) -> Rollout:
    """Random steps in CartPole's spaces."""
    observation, next_observation = (jnp.asarray(chance.normal(size=(T, B, 4))) for _ in range(2))
    ended = chance.random((T, B)) < 0.3
    terminated = ended & (chance.random((T, B)) < 0.5)
    return Rollout(
        observation=observation,
        action=jnp.asarray(chance.integers(0, 2, (T, B))),
        extras=jnp.zeros((T, B)) if log_prob is None else log_prob,
        reward=jnp.asarray(chance.normal(size=(T, B))),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(ended & ~terminated),
        next_observation=next_observation,
    )


@pytest.fixture
def bound() -> IMPALA:
    env = motet.make("CartPole-v1")
    return IMPALA(hidden=(8,)).bind(Spec(env.observation_space, env.action_space, 10))


def test_on_policy_its_gradient_is_that_of_a2c(bound: IMPALA) -> None:
    params = jax.jit(bound.init)(jax.random.key(0)).params
    seen = rollout(np.random.default_rng(0))
    log_prob = bound.networks.policy(params, seen.observation).log_prob(seen.action)
    ours, _ = jax.jit(bound.gradient)(params, rollout(np.random.default_rng(0), log_prob))
    options = {name: getattr(bound, name) for name in SHARED}
    a2c = motet.A2C(**options, gae_lambda=bound.trace).bind(bound.spec)
    theirs, _ = jax.jit(a2c.gradient)(params, seen)
    assert_close(ours, theirs)


def test_actions_that_have_become_likelier_count_no_more_than_the_clip(bound: IMPALA) -> None:
    """Beyond the clips the gradient no longer depends on how unlikely the actions once were."""
    params = jax.jit(bound.init)(jax.random.key(0)).params
    gradient = jax.jit(bound.gradient)
    unlikely, unlikelier = (
        gradient(params, rollout(np.random.default_rng(0), jnp.full((T, B), log_prob))) for log_prob in (-5, -9)
    )
    assert_close(unlikely[0], unlikelier[0])
    assert unlikely[1]["kl"] < unlikelier[1]["kl"]


def test_actions_that_would_no_longer_be_taken_count_for_nothing_but_entropy(bound: IMPALA) -> None:
    params = jax.jit(bound.init)(jax.random.key(0)).params
    _, metrics = jax.jit(bound.gradient)(params, rollout(np.random.default_rng(0), jnp.full((T, B), 60.0)))
    np.testing.assert_allclose([metrics["policy_loss"], metrics["value_loss"]], [0, 0], atol=1e-12)
