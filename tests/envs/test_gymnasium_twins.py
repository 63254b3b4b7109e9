"""The classic control environments against Gymnasium's: single transitions, whole episodes, resets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import pi
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.envs import make
from motet.envs.pendulum import Pendulum
from motet.flow.environment import Environment, Step, advance, begin
from motet.flow.spaces import Discrete

FLOAT = jnp.result_type(float)
DOUBLE = jax.config.jax_enable_x64
ROUNDED = {"rtol": 2e-7, "atol": 1e-12}
"""For what Gymnasium casts to float32 after computing it in float64."""

carefully = partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
)
"""As XLA compiles by itself: told to be quick, it rounds otherwise."""

TRANSITIONS = 4000
BATCH = 4


def identity(state: np.ndarray) -> np.ndarray:
    return state


def pendulum_observation(state: np.ndarray) -> np.ndarray:
    angle, speed = np.moveaxis(state, -1, 0)
    return np.stack([np.cos(angle), np.sin(angle), speed], -1)


def acrobot_observation(state: np.ndarray) -> np.ndarray:
    one, two, spin_1, spin_2 = np.moveaxis(state, -1, 0)
    return np.stack([np.cos(one), np.sin(one), np.cos(two), np.sin(two), spin_1, spin_2], -1)


@dataclass(frozen=True)
class Twin:
    """What the tests need to know of an environment besides its id."""

    span: tuple[float, ...]
    """States to try are uniform between -span + centre and span + centre."""
    reset_low: tuple[float, ...]
    reset_high: tuple[float, ...]
    skilled: Callable[[jax.Array], jax.Array]
    """From an observation to an action that does the task."""
    centre: tuple[float, ...] | float = 0.0
    observe: Callable[[np.ndarray], np.ndarray] = identity
    angles: tuple[int, ...] = ()
    """The elements of the state that are equal when they differ by a whole turn."""
    single: float = 1e-5
    """Tolerance in float32."""
    state_is_single: bool = False
    """Gymnasium keeps the state in float32."""
    ends: bool = True
    """The task can terminate."""

    def tolerance(self) -> dict[str, float]:
        return {"rtol": 1e-9, "atol": 1e-12} if DOUBLE else {"rtol": self.single, "atol": self.single}

    def rounded(self) -> dict[str, float]:
        return ROUNDED if DOUBLE else self.tolerance()


CAR = {
    "span": (0.95, 0.08),
    "centre": (-0.3, 0.0),
    "reset_low": (-0.6, 0),
    "reset_high": (-0.4, 0),
    "single": 1e-6,
}

TWINS = {
    "CartPole-v1": Twin(
        (2.6, 3.0, 0.26, 3.0), (-0.05,) * 4, (0.05,) * 4, lambda o: o @ jnp.array([0.1, 0.3, 1.0, 0.5]) > 0
    ),
    "Pendulum-v1": Twin(
        (20.0, 9.0),
        (-pi, -1.0),
        (pi, 1.0),
        lambda o: -2 * jnp.sign(o[2:] * o[0]),
        observe=pendulum_observation,
        ends=False,
    ),
    "Acrobot-v1": Twin(
        (pi, pi, 4 * pi, 9 * pi),
        (-0.1,) * 4,
        (0.1,) * 4,
        lambda o: jnp.where(o[5] > 0, 2, 0),
        observe=acrobot_observation,
        angles=(0, 1),
        single=2e-4,
    ),
    "MountainCar-v0": Twin(**CAR, skilled=lambda o: jnp.where(o[1] > 0, 2, 0)),
    "MountainCarContinuous-v0": Twin(**CAR, skilled=lambda o: jnp.where(o[1:] > 0, 1.3, -0.9), state_is_single=True),
}

every_twin = pytest.mark.parametrize("env_id", TWINS)


def gymnasium_env(env_id: str, **options: Any) -> gymnasium.Env:
    return gymnasium.make(env_id, disable_env_checker=True, **options)


def as_gymnasium_action(env: Environment, action: np.ndarray) -> Any:
    return int(action) if isinstance(env.action_space, Discrete) else action.astype(np.float64)


def random_actions(env: Environment, rng: np.random.Generator, count: int) -> np.ndarray:
    """Uniform actions; those of a box also lie outside of it, by half its size."""
    if isinstance(env.action_space, Discrete):
        return rng.integers(env.action_space.n, size=count, dtype=np.int32)
    low, high = env.action_space.bounds
    return rng.uniform(1.5 * low, 1.5 * high, (count, *env.action_space.shape)).astype(FLOAT)


def gymnasium_transitions(
    reference: gymnasium.Env, env: Environment, states: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Step Gymnasium from each state -> (next states, observations, rewards, terminated)."""
    reference.reset(seed=0)
    raw: Any = reference.unwrapped
    rows = []
    for state, action in zip(states.astype(np.float64), actions, strict=True):
        raw.state = state
        raw.steps_beyond_terminated = None  # CartPole's memory of a termination, which has its own reward
        observation, reward, terminated, _, _ = raw.step(as_gymnasium_action(env, action))
        rows.append((np.array(raw.state, np.float64), observation, reward, terminated))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def assert_transitions_equal(env: Environment, twin: Twin, reference: gymnasium.Env) -> tuple[np.ndarray, np.ndarray]:
    """Compare random transitions -> Gymnasium's next states and terminations, for more checks."""
    rng = np.random.default_rng(1)
    span = np.array(twin.span)
    states = (rng.uniform(-span, span, (TRANSITIONS, span.size)) + np.array(twin.centre)).astype(FLOAT)
    actions = random_actions(env, rng, TRANSITIONS)
    expected = gymnasium_transitions(reference, env, states, actions)
    got = carefully(jax.vmap(env.step, (0, 0, None)))(states, actions, jax.random.key(0))
    state, observation, reward, terminated = (np.asarray(leaf) for leaf in got)

    difference = state - expected[0]
    turning = list(twin.angles)
    difference[:, turning] -= 2 * pi * np.round(difference[:, turning] / (2 * pi))
    assert np.all(np.abs(state[:, turning]) <= pi * 1.000001), "these angles must be wrapped as Gymnasium's are"
    near = twin.rounded() if twin.state_is_single else twin.tolerance()
    np.testing.assert_allclose(expected[0] + difference, expected[0], **near)
    np.testing.assert_allclose(observation, expected[1], **twin.rounded())
    np.testing.assert_allclose(reward, expected[2], **twin.tolerance())
    np.testing.assert_array_equal(terminated, expected[3])
    return expected[0], expected[3]


@every_twin
def test_every_transition_equals_gymnasiums(env_id):
    twin, env = TWINS[env_id], make(env_id)
    states, terminated = assert_transitions_equal(env, twin, gymnasium_env(env_id))
    assert not terminated.all()
    assert terminated.any() == twin.ends, "the states tried must include terminal ones"
    if env_id.startswith("MountainCar"):
        at_left, at_right = np.isclose(states[:, 0], -1.2), np.isclose(states[:, 0], 0.6)
        assert at_left.sum() > 50 and at_right.sum() > 50, "the states tried must include both walls"


def test_pendulum_transitions_equal_gymnasiums_under_another_gravity():
    reference = gymnasium_env("Pendulum-v1", g=3.7)
    assert_transitions_equal(Pendulum(g=3.7), TWINS["Pendulum-v1"], reference)


@cache
def rollout(env_id: str) -> tuple[np.ndarray, np.ndarray, Step]:
    """States [T + 1, B, ...], actions [T, B, ...] and steps [T, B] of a bit over two time limits.

    Even environments follow the skilled policy and odd ones act at random, so episodes end in both ways.
    """
    env, twin = make(env_id), TWINS[env_id]
    steps = 2 * env.time_limit + 20
    noise = random_actions(env, np.random.default_rng(2), steps * BATCH)
    noise = noise.reshape(steps, BATCH, *env.action_space.aval.shape)
    random = np.arange(BATCH) % 2 == 1

    def one(carry, noise):
        episode, observation, key = carry
        skilled = jax.vmap(twin.skilled)(observation).astype(noise.dtype)
        action = jnp.where(random.reshape(-1, *[1] * (noise.ndim - 1)), noise, skilled)
        key, key_step = jax.random.split(key)
        after, step = advance(env, episode, action, jax.random.split(key_step, BATCH))
        return (after, step.observation, key), (episode.state, action, step)

    @carefully
    def whole(key, noise):
        key_begin, key_steps = jax.random.split(key)
        episode, observation, _ = begin(env, jax.random.split(key_begin, BATCH))
        (last, _, _), (states, actions, step) = jax.lax.scan(one, (episode, observation, key_steps), noise)
        return jnp.concatenate([states, last.state[None]]), actions, step

    return jax.tree.map(np.asarray, whole(jax.random.key(3), noise))


def replay(env_id: str, states: np.ndarray, actions: np.ndarray) -> dict[str, np.ndarray]:
    """The same episodes in Gymnasium, each step from motet's state so that rounding does not add up."""
    env = make(env_id)
    record = {"returns": np.zeros(actions.shape[:2]), "lengths": np.zeros(actions.shape[:2], int)}
    columns = []
    for b in range(actions.shape[1]):
        reference = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium_env(env_id))
        reference.reset(seed=b)
        column = []
        for t in range(actions.shape[0]):
            reference.unwrapped.state = states[t, b].astype(np.float64)
            *row, info = reference.step(as_gymnasium_action(env, actions[t, b]))
            column.append(row)
            if "episode" in info:
                record["returns"][t, b] = info["episode"]["r"]
                record["lengths"][t, b] = info["episode"]["l"]
                reference.reset()
        columns.append(zip(*column, strict=True))
    names = ("observation", "reward", "terminated", "truncated")
    for name, *per_environment in zip(names, *columns, strict=True):
        record[name] = np.stack([np.array(values) for values in per_environment], 1)
    return record


@every_twin
def test_whole_episodes_equal_gymnasiums_under_its_time_limit(env_id):
    twin = TWINS[env_id]
    states, actions, step = rollout(env_id)
    expected = replay(env_id, states, actions)
    np.testing.assert_array_equal(step.terminated, expected["terminated"])
    # Where both happen at once Gymnasium raises both flags; motet calls it terminated alone.
    np.testing.assert_array_equal(step.truncated, expected["truncated"] & ~expected["terminated"])
    assert step.truncated.any() and step.terminated.any() == twin.ends, "the episodes must end in every way"
    np.testing.assert_allclose(step.next_observation, expected["observation"], **twin.rounded())
    np.testing.assert_allclose(step.reward, expected["reward"], **twin.tolerance())
    np.testing.assert_allclose(step.finished_return, expected["returns"], rtol=1e-9 if DOUBLE else 1e-4)
    np.testing.assert_array_equal(step.finished_length, expected["lengths"])


@every_twin
def test_an_ended_episode_is_followed_by_a_reset_in_the_same_step(env_id):
    twin = TWINS[env_id]
    states, _, step = rollout(env_id)
    ended = step.terminated | step.truncated
    np.testing.assert_array_equal(step.first, ended)
    np.testing.assert_array_equal(step.observation[~ended], step.next_observation[~ended])
    np.testing.assert_allclose(step.observation, twin.observe(states[1:]), rtol=1e-5, atol=1e-6)
    assert_within(states[1:][ended], twin)
    assert len(np.unique(states[1:][ended], axis=0)) == ended.sum(), "every episode must start anew"


def assert_within(states: np.ndarray, twin: Twin) -> None:
    low, high = np.array(twin.reset_low, FLOAT), np.array(twin.reset_high, FLOAT)
    assert np.all(states >= low) and np.all(states <= high)


@every_twin
def test_resets_are_distributed_as_gymnasiums(env_id):
    twin, env = TWINS[env_id], make(env_id)
    states, observations = carefully(jax.vmap(env.reset))(jax.random.split(jax.random.key(4), 4096))
    states = np.asarray(states)
    assert_within(states, twin)
    np.testing.assert_allclose(observations, twin.observe(states), rtol=1e-5, atol=1e-6)
    reference = gymnasium_env(env_id)
    reference.reset(seed=5)
    samples = np.array([reference.reset()[0] for _ in range(2000)])
    for ours, theirs in zip(np.asarray(observations).T, samples.T, strict=True):
        assert_same_distribution(ours, theirs)
    correlation = np.corrcoef(states[:, np.ptp(states, axis=0) > 0].T)
    assert np.all(np.abs(np.atleast_2d(correlation) - np.eye(len(np.atleast_1d(correlation)))) < 0.08)


def assert_same_distribution(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Two-sample Kolmogorov-Smirnov at the 0.1% level."""
    ours, theirs = np.sort(ours.astype(np.float32)), np.sort(theirs.astype(np.float32))
    at = np.concatenate([ours, theirs])
    below = [np.searchsorted(sample, at, side="right") / sample.size for sample in (ours, theirs)]
    assert np.max(np.abs(below[0] - below[1])) < 1.95 * np.sqrt(1 / ours.size + 1 / theirs.size)


@every_twin
def test_spaces_and_time_limit_equal_gymnasiums(env_id):
    env, reference = make(env_id), gymnasium_env(env_id)
    assert env.time_limit == reference.spec.max_episode_steps
    for ours, theirs in (
        (env.observation_space, reference.observation_space),
        (env.action_space, reference.action_space),
    ):
        if isinstance(ours, Discrete):
            assert ours.n == theirs.n
        else:
            assert ours.shape == theirs.shape
            for bound, expected in zip(ours.bounds, (theirs.low, theirs.high), strict=True):
                np.testing.assert_allclose(bound, expected, **ROUNDED)
