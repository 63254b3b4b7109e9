"""Actions in their bounds, and what DDPG and TD3 make of single steps, computed again by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.algorithms.continuous import Scale, explore, follow
from motet.flow.spaces import Box, Space
from motet.flow.values import Transitions

OBSERVATIONS = Box(-1.0, 1.0, (3,))
ACTIONS = Box((-2.0, 0.0), (2.0, 10.0), (2,))
N = 6


def bound(kind: Any, actions: Space = ACTIONS, observations: Space = OBSERVATIONS, **options: Any) -> Any:
    return kind(**{"hidden": (8,), **options}).bind(motet.Spec(observations, actions, 10))


def steps(terminated: tuple[bool, ...] = (False,) * N, valid: Any = ()) -> Transitions:
    chance = np.random.default_rng(1)
    observation, next_observation = (jnp.asarray(chance.normal(size=(N, 3))) for _ in range(2))
    action = jnp.asarray(chance.uniform(*ACTIONS.bounds, size=(N, 2)))
    reward = jnp.asarray(chance.normal(size=N))
    return Transitions(observation, action, reward, jnp.asarray(terminated), next_observation, valid)


def keys(count: int = N) -> jax.Array:
    return jax.random.split(jax.random.key(3), count)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_scale_reaches_the_bounds_and_comes_back() -> None:
    scale = Scale.of(ACTIONS)
    np.testing.assert_allclose(scale.to_box(jnp.asarray([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]])),
                               [[-2, 0], [2, 10], [0, 7.5]])  # fmt: skip
    unit = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (4, 5, 2)))
    np.testing.assert_allclose(scale.to_unit(scale.to_box(unit)), unit, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_scale_keeps_shapes_and_types(shape: tuple[int, ...]) -> None:
    scale = Scale.of(Box(-0.1, 0.7, shape, "float32"))
    action = scale.to_box(jnp.ones((4, scale.size)))
    assert (action.shape, action.dtype) == ((4, *shape), jnp.float32)
    assert (action <= jnp.float32(0.7)).all()
    assert scale.to_unit(action).shape == (4, scale.size)


@pytest.mark.parametrize("kind", [motet.DDPG, motet.TD3, motet.SAC])
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Box(-1.0, float("inf"), (2,)), "bounds of their Box, which must be finite"),
        (Box(-1, 1, (2,), "int32"), "chosen as real numbers"),
        (motet.MultiDiscrete((2, 2)), "chooses Box"),
    ],
)
def test_other_actions_are_refused(kind: Any, space: Space, message: str) -> None:
    with pytest.raises(motet.BadAlgorithm, match=message):
        jax.eval_shape(bound(kind, space).init, jax.random.key(0))


def test_exploration_is_clipped_noise_or_even() -> None:
    unit = jnp.asarray([0.95, -0.2])
    draw = jax.vmap(lambda key, random: explore(unit, 0.1, random, key), (0, None))
    noisy, even = (np.asarray(draw(keys(4_000), jnp.asarray(random))) for random in (False, True))
    assert noisy.max() == 1
    np.testing.assert_allclose(noisy[:, 1].std(), 0.1, rtol=0.05)
    np.testing.assert_allclose([even.mean(), even.std()], [0, 1 / np.sqrt(3)], atol=0.02)


def test_a_target_follows_by_a_share_of_the_way() -> None:
    after = follow({"w": jnp.asarray([0.0, 4.0])}, {"w": jnp.asarray([1.0, 0.0])}, 0.25)
    np.testing.assert_allclose(after["w"], [0.25, 3.0])


def test_ddpg_ends_values_with_episodes_that_terminate_and_only_those() -> None:
    algorithm = bound(motet.DDPG, discount=0.9)
    target = jax.jit(algorithm.init)(jax.random.key(0)).target
    batch = steps((True, False, False, True, False, False))  # a truncated step is one that did not terminate
    action = np.tanh(algorithm.actor(target.actor, batch.next_observation))
    later = np.asarray(algorithm.critic(target.critic, batch.next_observation, jnp.asarray(action)))
    goal = np.asarray(batch.reward) + 0.9 * np.where([1, 0, 0, 1, 0, 0], 0, later)
    np.testing.assert_allclose(jax.jit(algorithm.goal)(target, batch), goal, rtol=1e-5)


def test_td3_takes_the_lesser_target_critic() -> None:
    algorithm = bound(motet.TD3, discount=0.9, target_noise=0.0)
    target = jax.jit(algorithm.init)(jax.random.key(0)).target
    batch = steps((True, *[False] * 5))
    action = algorithm.choose(target.actor, batch.next_observation)
    one, other = (np.asarray(algorithm.critic(each, batch.next_observation, action)) for each in target.critics)
    assert (one != other).all()
    goal = np.asarray(batch.reward) + 0.9 * np.where(np.arange(N) == 0, 0, np.minimum(one, other))
    np.testing.assert_allclose(jax.jit(algorithm.goal)(target, batch, keys()), goal, rtol=1e-5)


def test_target_noise_is_clipped_and_stays_in_bounds() -> None:
    algorithm = bound(motet.TD3, target_noise=0.2, target_noise_clip=0.3)
    unit = jnp.broadcast_to(jnp.asarray([0.0, 0.9]), (4_000, 2))
    change = np.asarray(algorithm.blur(unit, keys(4_000)) - unit)
    np.testing.assert_allclose(np.abs(change[:, 0]).max(), 0.3, rtol=1e-6)
    np.testing.assert_allclose([change[:, 1].min(), change[:, 1].max()], [-0.3, 0.1], rtol=1e-5)
    inside = np.abs(change[:, 0]) < 0.3
    np.testing.assert_allclose(inside.mean(), 0.866, atol=0.02)  # 1.5 deviations


def test_td3_moves_its_actor_and_targets_every_other_step() -> None:
    algorithm = bound(motet.TD3)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    gradient, update = jax.jit(algorithm.gradient), jax.jit(algorithm.apply)
    for step in range(1, 5):
        gradients, _ = gradient(algorithm.weights(state), steps(), keys=keys())
        after = update(state, gradients)
        moves = step % 2 == 0
        assert np.any(flat(gradients.mean.actor) != 0) == moves
        assert np.any(flat(after.actor) != flat(state.actor)) == moves
        assert np.any(flat(after.target) != flat(state.target)) == moves
        assert np.any(flat(after.critics.params) != flat(state.critics.params))
        state = after


@pytest.mark.parametrize("kind", [motet.DDPG, motet.TD3, motet.SAC])
def test_steps_that_never_happened_teach_nothing(kind: Any) -> None:
    algorithm = bound(kind, **({"policy_delay": 1} if kind is motet.TD3 else {}))
    weights = algorithm.weights(jax.jit(algorithm.init)(jax.random.key(0)))
    batch = steps(valid=jnp.asarray([True] * 4 + [False] * 2))
    other = replace(batch, reward=batch.reward.at[4:].set(99.0), observation=batch.observation.at[4:].set(3.0))
    random = {} if kind is motet.DDPG else {"keys": keys()}
    one, two = (flat(jax.jit(algorithm.gradient)(weights, each, **random)[0]) for each in (batch, other))
    assert np.abs(one).max() > 0
    np.testing.assert_array_equal(one, two)


def test_neither_network_of_ddpg_learns_from_the_loss_of_the_other() -> None:
    """The actor climbs the critic's value; the critic does not move to please it."""
    algorithm = bound(motet.DDPG)
    params, target = algorithm.weights(jax.jit(algorithm.init)(jax.random.key(0)))
    batch = steps()
    gradients, _ = jax.jit(algorithm.gradient)((params, target), batch)

    def error(critic: Any) -> jax.Array:
        value = algorithm.critic(critic, batch.observation, algorithm.scale.to_unit(batch.action))
        return 0.5 * jnp.mean(jnp.square(value - algorithm.goal(target, batch)))

    np.testing.assert_allclose(flat(gradients.critic), flat(jax.grad(error)(params.critic)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [motet.DDPG, motet.TD3, motet.SAC])
def test_actions_are_random_until_something_was_learned(kind: Any) -> None:
    algorithm = bound(kind)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    assert algorithm.policy(state).random
    assert not algorithm.policy(replace(state, updates=jnp.ones((), jnp.int32))).random


@pytest.mark.parametrize("kind", [motet.DDPG, motet.TD3, motet.SAC])
def test_images_can_be_looked_at(kind: Any) -> None:
    algorithm = bound(kind, observations=Box(0, 255, (36, 36, 3), "uint8"), hidden=(16,))
    shapes = {leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(algorithm.init, jax.random.key(0)))}
    assert {(8, 8, 3, 32), (512 + 2, 16)} <= shapes  # convolutions; the action beside what they give
