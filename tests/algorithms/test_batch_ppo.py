"""The adaptive penalty of BatchPPO, by what its loss reduces to."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.algorithms.batch_ppo import BatchPPO, Penalised, centre_and_reach
from motet.algorithms.normalize import PLAIN
from motet.algorithms.proximal import Batch
from motet.flow.algorithm import Spec
from motet.flow.spaces import Box
from tests.laws.cases import assert_close, learner, run, traced

SMALL = BatchPPO(num_envs=4, num_steps=8, update_epochs=3, hidden=(8,))


def bound(env: str, algorithm: BatchPPO = SMALL) -> BatchPPO:
    made = motet.make(env)
    return algorithm.bind(Spec(made.observation_space, made.action_space, 10))


def case(algorithm: BatchPPO, moved: float) -> tuple[Penalised, Batch]:
    """A policy, and a batch from one whose parameters were `moved` away from it."""
    chance, (key_init, key_act) = np.random.default_rng(0), jax.random.split(jax.random.key(0))
    params = jax.jit(algorithm.init)(key_init).params
    older = jax.tree.map(lambda leaf: leaf + moved * chance.normal(size=leaf.shape).astype(leaf.dtype), params)
    observation = jnp.asarray(chance.normal(size=(64, *algorithm.spec.observation_space.aval.shape)))
    behaviour = algorithm.networks.policy(older, observation)
    action = behaviour.sample(key_act)
    zeros = jnp.zeros(64)
    batch = Batch(observation, action, behaviour, zeros, jnp.asarray(chance.normal(size=64)), zeros)
    return Penalised(params, PLAIN, jnp.asarray(3.0)), batch


tasks = pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])


def policy_gradient(algorithm: BatchPPO, policy: Penalised, batch: Batch, written=None):
    def loss(params):
        distribution = algorithm.networks.policy(params, batch.observation)
        if written is not None:
            return written(distribution)
        return algorithm.policy_loss(policy, distribution, batch, batch.advantage)[0]

    return jax.jit(jax.grad(loss))(policy.params)


@tasks
def test_at_the_policy_that_acted_the_gradient_is_the_policy_gradient(env: str) -> None:
    algorithm = bound(env)
    policy, batch = case(algorithm, moved=0.0)
    expected = policy_gradient(
        algorithm, policy, batch, lambda now: -jnp.mean(now.log_prob(batch.action) * batch.advantage)
    )
    assert_close(policy_gradient(algorithm, policy, batch), expected)


@tasks
@pytest.mark.parametrize("moved", [0.01, 0.5])
def test_gradient_is_that_of_penalty_and_square_beyond_the_cutoff(env: str, moved: float) -> None:
    algorithm = bound(env)
    policy, batch = case(algorithm, moved)

    def written(now):
        ratio = jnp.exp(now.log_prob(batch.action) - batch.behaviour.log_prob(batch.action))
        kl = jnp.mean(batch.behaviour.kl(now))
        return -jnp.mean(ratio * batch.advantage) + 3 * kl + 1000 * jnp.square(jnp.maximum(0, kl - 2 * 0.01))

    far = float(algorithm.divergence(policy, batch)) > 0.02
    assert far == (moved == 0.5), "one case on either side of the cutoff"
    assert_close(policy_gradient(algorithm, policy, batch), policy_gradient(algorithm, policy, batch, written))


@pytest.mark.parametrize(("kl", "factor"), [(0.0, 1 / 1.5), (0.0069, 1 / 1.5), (0.0071, 1), (0.0129, 1), (0.0131, 1.5)])
def test_penalty_follows_the_divergence(kl: float, factor: float) -> None:
    algorithm = bound("CartPole-v1")
    state = replace(jax.jit(algorithm.init)(jax.random.key(0)), penalty=jnp.asarray(2.0))
    np.testing.assert_allclose(algorithm.adapt(state, jnp.asarray(kl)).penalty, 2 * factor, rtol=1e-6)


def test_first_policy_has_actions_around_the_middle_of_their_range() -> None:
    algorithm = bound("Pendulum-v1")
    first = algorithm.networks.policy(jax.jit(algorithm.init)(jax.random.key(0)).params, jnp.zeros(3))
    np.testing.assert_allclose(jnp.exp(first.log_std), 2 * 0.35, rtol=1e-5)
    assert abs(float(first.mean[0])) < 0.2


def test_reach_of_a_range_without_end_is_1() -> None:
    centre, reach = centre_and_reach(Box((0.0, -np.inf), (4.0, np.inf), (2,)))
    np.testing.assert_array_equal(centre, [2, 0])
    np.testing.assert_array_equal(reach, [2, 1])


def test_continuous_actions_learn_the_same_under_a_plan() -> None:
    env, plan = motet.make("Pendulum-v1"), motet.coarse(2)
    graph = traced(SMALL, motet.anakin(), env)
    ours = learner(graph, run(graph, motet.anakin())[0])
    other = traced(SMALL, plan, env)
    assert_close(learner(other, run(other, plan)[0]), ours)
