"""Wrappers for JAX environments: what each changes, and that the rest stays."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.envs.cartpole import CartPole
from motet.envs.catch import Catch
from motet.envs.pendulum import Pendulum
from motet.envs.wrappers import (
    ActionRepeat,
    ClipAction,
    FrameDelta,
    FrameStack,
    LimitDuration,
    RandomStart,
    RangeNormalize,
    SelectObservation,
    Wrapper,
)
from motet.errors import BadEnvironment, BadOption
from motet.flow.environment import Environment, advance, begin, check_environment
from motet.flow.spaces import Box, Discrete

KEY = jax.random.key(3)
FLOAT = jnp.result_type(float)


@dataclass(frozen=True)
class Count(Environment):
    """Observes how many steps it has taken, times the action; ends at `end` of them; the reward is the count."""

    end: int = 1000
    time_limit: int | None = None

    observation_space = Box(0.0, 1000.0, (2,))
    action_space = Box(-2.0, 4.0, (1,))

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(2)

    def step(self, state, action, key):
        state = state + 1
        count = state.astype(FLOAT)
        return state, jnp.stack([count, action[0]]), count, state >= self.end


def play(env, actions, key=KEY):
    """The observations [T + 1, ...], rewards and terminations [T] of one episode that is not reset."""

    @jax.jit
    def whole(key, actions):
        state, first = env.reset(key)

        def one(state, action):
            state, *rest = env.step(state, action, key)
            return state, rest

        return first, jax.lax.scan(one, state, actions)[1]

    first, (observations, rewards, terminated) = whole(key, jnp.asarray(actions))
    return np.concatenate([first[None], observations]), np.asarray(rewards), np.asarray(terminated)


def ones(steps):
    return np.ones((steps, 1), FLOAT)


WRAPPED = {
    "FrameStack(3) of CartPole-v1": FrameStack(CartPole(), 3),
    "FrameDelta of CartPole-v1": FrameDelta(CartPole()),
    "ActionRepeat(4) of CartPole-v1": ActionRepeat(CartPole(), 4),
    "RandomStart(5) of CartPole-v1": RandomStart(CartPole(), 5),
    "ClipAction of Pendulum-v1": ClipAction(Pendulum()),
    "RangeNormalize of Pendulum-v1": RangeNormalize(Pendulum()),
    "LimitDuration(7) of CartPole-v1": LimitDuration(CartPole(), 7),
    "SelectObservation((0, 2)) of CartPole-v1": SelectObservation(CartPole(), (0, 2)),
    "FrameStack(2) of FrameDelta of Catch-v0": FrameStack(FrameDelta(Catch()), 2),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_every_wrapper_is_an_environment_with_a_name_that_says_what_it_is(name):
    env = WRAPPED[name]
    assert env.name == name
    check_environment(env)
    low, high = (np.asarray(bound, np.float64) for bound in env.observation_space.bounds)
    assert np.all(low < high)


@pytest.mark.parametrize("name", WRAPPED)
def test_a_step_keeps_the_types_of_a_reset(name):
    env = WRAPPED[name]
    state, observation = jax.eval_shape(env.reset, KEY)
    after, seen, _, _ = jax.eval_shape(env.step, state, env.action_space.aval, KEY)
    for before, later in zip(jax.tree.leaves((state, observation)), jax.tree.leaves((after, seen)), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (later.shape, later.dtype, later.weak_type)


def test_wrappers_are_equal_by_value_so_that_compiled_functions_are_shared():
    assert FrameStack(CartPole(), 3) == FrameStack(CartPole(), 3)
    assert hash(FrameStack(CartPole(), 3)) == hash(FrameStack(CartPole(), 3))
    assert FrameStack(CartPole(), 3) != FrameStack(CartPole(), 2)
    assert FrameStack(Pendulum(g=9.0), 3) != FrameStack(Pendulum(), 3)
    assert FrameDelta(CartPole()) != RangeNormalize(CartPole())


def test_what_a_wrapper_does_not_change_is_the_wrapped_environments():
    env, inner = Wrapper(CartPole()), CartPole()
    assert (env.observation_space, env.action_space, env.time_limit) == (inner.observation_space, Discrete(2), 500)
    actions = np.array([0, 1, 1, 0, 1])
    for ours, theirs in zip(play(env, actions), play(inner, actions), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_frame_stack_holds_the_last_frames_oldest_first():
    observations, _, _ = play(FrameStack(Count(), 3), ones(4))
    np.testing.assert_array_equal(observations[:, :, 0], [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]])


def test_a_frame_stack_begins_anew_with_the_episode():
    env = FrameStack(Count(end=3), 2)
    episode, _, _ = begin(env, jax.random.split(KEY, 1))
    for _ in range(3):
        episode, step = advance(env, episode, ones(1), jax.random.split(KEY, 1))
    np.testing.assert_array_equal(step.next_observation[0, :, 0], [2, 3])
    np.testing.assert_array_equal(step.observation[0], np.zeros((2, 2)))


def test_frame_deltas_sum_up_to_the_frame():
    actions = np.array([0, 1, 1, 0, 1])
    frames, _, _ = play(CartPole(), actions)
    deltas, _, _ = play(FrameDelta(CartPole()), actions)
    np.testing.assert_allclose(np.cumsum(deltas, 0), frames, rtol=1e-5, atol=1e-6)


def test_a_repeated_action_sums_rewards():
    observations, rewards, _ = play(ActionRepeat(Count(), 3), ones(2))
    np.testing.assert_array_equal(observations[:, 0], [0, 3, 6])
    np.testing.assert_array_equal(rewards, [1 + 2 + 3, 4 + 5 + 6])


def test_a_repeated_action_stops_at_the_end():
    observations, rewards, terminated = play(ActionRepeat(Count(end=5), 3), ones(2))
    np.testing.assert_array_equal(observations[:, 0], [0, 3, 5])
    np.testing.assert_array_equal(rewards, [1 + 2 + 3, 4 + 5])
    np.testing.assert_array_equal(terminated, [False, True])


@pytest.mark.parametrize(("limit", "outer", "last"), [(6, 2, 6), (7, 3, 7), (None, None, 9)])
def test_a_repeated_action_keeps_the_time_limit(limit, outer, last):
    env = ActionRepeat(Count(time_limit=limit), 3)
    assert env.time_limit == outer
    observations, _, terminated = play(env, ones(outer or 3))
    assert observations[-1, 0] == last
    assert not terminated.any()


def test_one_repetition_changes_nothing():
    observations, rewards, _ = play(ActionRepeat(Count(), 1), ones(3))
    np.testing.assert_array_equal(observations[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(rewards, [1, 2, 3])


def starts(env, count=400):
    _, observations = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, count))
    return np.asarray(observations)


def test_a_random_start_takes_every_number_of_random_actions():
    steps, actions = starts(RandomStart(Count(), 4)).T
    numbers, counts = np.unique(steps, return_counts=True)
    np.testing.assert_array_equal(numbers, [0, 1, 2, 3, 4])
    assert counts.min() > 400 / 5 * 0.6
    assert len(np.unique(actions[steps > 0])) == (steps > 0).sum()


def test_a_random_start_never_ends_the_episode():
    assert starts(RandomStart(Count(end=3), 10))[:, 0].max() == 2


def test_actions_are_clipped_to_the_bounds():
    env = ClipAction(Count())
    assert np.all(np.isinf(env.action_space.bounds))
    observations, _, _ = play(env, np.array([[-9.0], [1.0], [9.0]], FLOAT))
    np.testing.assert_array_equal(observations[1:, 1], [-2, 1, 4])


def test_ranges_become_minus_one_to_one():
    env = RangeNormalize(Count())
    assert (np.unique(env.action_space.bounds[0]), np.unique(env.action_space.bounds[1])) == (-1, 1)
    observations, _, _ = play(env, np.array([[-1.0], [0.0], [1.0]], FLOAT))
    np.testing.assert_allclose(observations[1:, 1] * 500 + 500, [-2, 1, 4], atol=1e-4)
    np.testing.assert_allclose(observations[:, 0], np.arange(4) / 500 - 1, atol=1e-6)


def test_elements_without_bounds_are_left_alone():
    env = RangeNormalize(CartPole())
    np.testing.assert_array_equal(env.observation_space.bounds[1], [1, np.inf, 1, np.inf])
    ours, theirs = play(env, np.array([1, 1]))[0], play(CartPole(), np.array([1, 1]))[0]
    np.testing.assert_array_equal(ours[:, [1, 3]], theirs[:, [1, 3]])
    np.testing.assert_allclose(ours[:, 0] * 4.8, theirs[:, 0], rtol=1e-5)


@pytest.mark.parametrize(("inner", "n", "limit"), [(None, 5, 5), (9, 5, 5), (3, 5, 3)])
def test_a_duration_is_limited_to_the_shorter(inner, n, limit):
    assert LimitDuration(Count(time_limit=inner), n).time_limit == limit


def test_a_limited_episode_is_truncated():
    env = LimitDuration(CartPole(), 2)
    episode, _, _ = begin(env, jax.random.split(KEY, 4))
    for expected in (False, True, False, True):
        episode, step = advance(env, episode, jnp.zeros(4, jnp.int32), jax.random.split(KEY, 4))
        np.testing.assert_array_equal(step.truncated, [expected] * 4)
        assert not step.terminated.any()


def test_selected_elements_are_all_that_is_seen():
    env = SelectObservation(CartPole(), (0, 2))
    for ours, theirs in zip(env.observation_space.bounds, CartPole.observation_space.bounds, strict=True):
        np.testing.assert_array_equal(ours, theirs[[0, 2]])
    ours, theirs = play(env, np.array([1, 1]))[0], play(CartPole(), np.array([1, 1]))[0]
    np.testing.assert_array_equal(ours, theirs[:, [0, 2]])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: FrameStack(CartPole(), 0), BadOption, "n of FrameStack must be at least 1, got 0"),
        (lambda: ActionRepeat(CartPole(), 0), BadOption, "at least 1"),
        (lambda: RandomStart(CartPole(), 0), BadOption, "steps of RandomStart"),
        (lambda: LimitDuration(CartPole(), 0), BadOption, "at least 1"),
        (lambda: SelectObservation(CartPole(), (0, 4)), BadOption, r"0 to 3, got \(0, 4\)"),
        (lambda: SelectObservation(CartPole(), ()), BadOption, r"got \(\)"),
        (lambda: ClipAction(CartPole()), BadEnvironment, r"ClipAction needs Box actions.*Discrete\(2\)"),
        (lambda: RangeNormalize(FrameStack(Unbounded(), 2)), BadEnvironment, "nothing with two bounds"),
        (lambda: FrameDelta(Pixels()), BadEnvironment, "numbers with a sign"),
    ],
)
def test_what_cannot_be_wrapped_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@dataclass(frozen=True)
class Unbounded(Count):
    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Discrete(2)


@dataclass(frozen=True)
class Pixels(Count):
    observation_space = Box(0, 255, (2,), "uint8")
