"""Gymnasium's environments keep their meaning: spaces, actions, ends of episodes, seeds."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit, TransformReward

import motet
from motet.envs.gymnasium import Gymnasium, convert_space
from motet.envs.host_wrappers import ActionRepeat, FrameDelta, RandomStart
from motet.flow.host import HostStep, Opening
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, parts
from tests.envs.host_envs import Counter, Fresh, Nested, Noisy, Pointed


def run(env: Gymnasium, steps: int, **opening: Any) -> list[HostStep]:
    """Some steps with fixed random actions of Discrete(2), copied."""
    given = {"first": 0, "count": 4, "seed": 3, **opening}
    pool = env.open(Opening(**given))
    try:
        pool.reset()
        generator = np.random.default_rng(0)
        actions = generator.integers(0, 2, (steps, 64)).astype(np.int32)
        rows = slice(given["first"], given["first"] + given["count"])
        return [copied(pool.step((action[rows],))) for action in actions]
    finally:
        pool.close()


def copied(step: HostStep) -> HostStep:
    return HostStep(*(tuple(map(np.copy, part)) if isinstance(part, tuple) else part.copy() for part in step))


def assert_same(one: list[HostStep], other: list[HostStep]) -> None:
    for left, right in zip(one, other, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_equal(a, b)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (gym.Discrete(3, start=7), Discrete(3)),
        (gym.MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete((2, 3, 4, 5))),
        (gym.MultiBinary([2, 3]), MultiBinary((2, 3))),
        (gym.Box(0, 255, (84, 84, 4), np.uint8), Box(0.0, 255.0, (84, 84, 4), "uint8")),
        (gym.Box(-1, 2, (3,), np.float64), Box(-1.0, 2.0, (3,))),
        (gym.Box(np.array([0.0, 1.0]), np.array([3.0, 2.0]), dtype=np.float64), Box((0.0, 1.0), (3.0, 2.0), (2,))),
        (gym.Box(-1e300, np.finfo(np.float64).max, (), np.float64), Box(-np.inf, np.inf, ())),
        (gym.Box(0, 2**40, (2,), np.int64), Box(0.0, 2.0**31 - 1, (2,), "int32")),
        (gym.Dict({"b": gym.Discrete(2), "a": gym.Tuple((gym.Discrete(3),))}),
         Dict({"a": Tuple((Discrete(3),)), "b": Discrete(2)})),
    ],
)  # fmt: skip
def test_spaces_become_motet_spaces(theirs: gymnasium.Space, ours: Any) -> None:
    assert convert_space(theirs) == ours


@pytest.mark.parametrize("space", [gym.Text(3), gym.Sequence(gym.Discrete(2)), gym.Graph(gym.Discrete(2), None)])
def test_a_space_without_a_fixed_size_is_refused(space: gymnasium.Space) -> None:
    with pytest.raises(motet.BadEnvironment, match="no fixed size"):
        convert_space(gym.Dict({"part": space}))


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_observations_and_actions_arrive_in_order(workers: int) -> None:
    env = Gymnasium(Nested)
    pool = env.open(Opening(0, 3, 0, workers=workers))
    first = pool.reset()
    assert [leaf.dtype for leaf in first] == [part.aval.dtype for part in parts(env.observation_space)]
    arm, lights, keys, turn = (
        np.array([[0.5, -9.0], [1.0, 1.5], [5.0, 0.0]], np.float32),
        np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], np.int8),
        np.array([[1, 2, 3, 4], [0, 0, 0, 0], [1, 0, 1, 0]], np.int32),
        np.array([0, 1, 2], np.int32),
    )
    step = pool.step((arm, lights, keys, turn))
    count, image, *last = step.observation
    np.testing.assert_array_equal(count, 1)  # It starts at 5 there, and at 0 here.
    assert image.shape == (3, 2, 2) and image.dtype == np.uint8
    np.testing.assert_array_equal(last[0], arm.clip(-2, 2))
    for got, sent in zip(last[1:], (lights, keys, turn), strict=True):
        np.testing.assert_array_equal(got, sent)
    pool.close()


@pytest.mark.parametrize("count", [2, 40])  # a few numbers are looked at one by one
def test_box_actions_are_clipped_and_cast(count: int) -> None:
    pool = Gymnasium(Pointed).open(Opening(0, count, 0))
    pool.reset()
    actions = np.tile(np.array([[-7.0, 2.0], [0.5, -1.0]], np.float32), (count // 2, 1))
    step = pool.step((actions,))
    np.testing.assert_allclose(step.reward, [-10 + 2, 5 + 0] * (count // 2))
    inside = np.tile(np.array([[-0.5, 1.0], [0.5, 0.25]], np.float32), (count // 2, 1))
    np.testing.assert_allclose(pool.step((inside,)).reward, [-5 + 1, 5 + 0.25] * (count // 2))
    pool.close()


def test_one_environment_may_return_numpy_scalars() -> None:
    class Scalars(gymnasium.Env[np.ndarray, int]):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            return np.zeros(2, np.float32), {}

        def step(self, action: int) -> tuple[np.ndarray, Any, Any, Any, dict[str, Any]]:
            return np.full(2, 0.5, np.float32), np.float64(-1.25), np.bool_(action == 1), np.bool_(False), {}

    pool = Gymnasium(Scalars).open(Opening(0, 1, 0))
    pool.reset()
    for action in (0, 1):
        step = pool.step((np.array([action], np.int32),))
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (-1.25, action == 1, False)
        np.testing.assert_array_equal(step.next_observation[0], [[0.5, 0.5]])
    np.testing.assert_array_equal(step.observation[0], [[0, 0]])
    pool.close()


def test_an_action_that_is_none_is_refused() -> None:
    for env, action, message in (
        (Gymnasium(Pointed), np.array([[np.nan, 0.0]], np.float32), "NaN"),
        (Gymnasium(Counter), np.array([2], np.int32), "below 2"),
        (Gymnasium(Counter), np.array([0, 1], np.int32), r"shape \(1,\), but has \(2,\)"),
    ):
        pool = env.open(Opening(0, 1, 0))
        pool.reset()
        with pytest.raises(motet.BadAlgorithm, match=message):
            pool.step((action,))
        pool.close()


def test_truncation_keeps_the_true_last_observation_of_cartpole() -> None:
    limited = Gymnasium("CartPole-v1", max_episode_steps=7)
    single = gymnasium.make("CartPole-v1", max_episode_steps=7)
    pool = limited.open(Opening(5, 1, 11))
    observation, _ = single.reset(seed=Opening(5, 1, 11).seed_of(0))
    np.testing.assert_array_equal(pool.reset()[0][0], observation)
    ends = 0
    for number in range(40):
        step = pool.step((np.array([number % 2], np.int32),))
        observation, reward, terminated, truncated, _ = single.step(number % 2)
        np.testing.assert_array_equal(step.next_observation[0][0], observation)
        assert (step.reward[0], step.terminated[0], step.truncated[0]) == (reward, terminated, truncated)
        if terminated or truncated:
            ends += truncated
            observation, _ = single.reset()
        np.testing.assert_array_equal(step.observation[0][0], observation)
    assert ends
    pool.close()


def test_environments_that_reuse_their_array_keep_their_last_observation() -> None:
    for step in run(Gymnasium(Noisy), 30):
        ended = step.terminated | step.truncated
        assert (step.observation[0][ended, 0] == 0).all() and (step.next_observation[0][ended, 0] > 0).all()
        np.testing.assert_array_equal(step.observation[0][~ended], step.next_observation[0][~ended])


def test_statistics_are_those_of_record_episode_statistics() -> None:
    recorded: list[tuple[float, int]] = []
    theirs = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    theirs.reset(seed=Opening(0, 1, 3).seed_of(0))
    ours: list[tuple[float, int]] = []
    total, length = 0.0, 0
    generator = np.random.default_rng(0)
    actions = generator.integers(0, 2, (300, 64))[:, 0]
    for action, step in zip(actions, run(Gymnasium("CartPole-v1"), 300, count=1), strict=True):
        _, _, terminated, truncated, info = theirs.step(int(action))
        if terminated or truncated:
            recorded.append((info["episode"]["r"], info["episode"]["l"]))
            theirs.reset()
        total, length = total + step.reward[0], length + 1
        if step.terminated[0] or step.truncated[0]:
            ours.append((total, length))
            total, length = 0.0, 0
    assert ours == recorded and len(ours) > 5


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def vector_of(make: Any, mode: AutoresetMode, kind: Any, count: int) -> Any:
    return kind([make] * count, autoreset_mode=mode)


@pytest.mark.parametrize("make", [Fresh, Nested])
@pytest.mark.parametrize("mode", MODES)
def test_vector_environments_equal_single_ones_in_every_mode(mode: AutoresetMode, make: Any) -> None:
    vector = Gymnasium(partial(vector_of, make, mode, SyncVectorEnv), vector=True)
    if make is Fresh:
        assert_same(run(vector, 40), run(Gymnasium(make), 40))
    else:
        assert vector.observation_space == Gymnasium(make).observation_space
        pool = vector.open(Opening(0, 2, 0))
        pool.reset()
        action = tuple(np.zeros((2, *part.aval.shape), part.aval.dtype) for part in parts(vector.action_space))
        np.testing.assert_array_equal(pool.step(action).observation[-1], 0)
        pool.close()


def test_an_async_vector_environment_equals_single_ones() -> None:
    make = partial(vector_of, Noisy, AutoresetMode.NEXT_STEP, partial(AsyncVectorEnv, context="spawn"))
    assert_same(run(Gymnasium(make, vector=True), 20, count=2), run(Gymnasium(Noisy), 20, count=2))


def test_a_vector_environment_by_id() -> None:
    env = Gymnasium("CartPole-v1", vector=True, vectorization_mode="sync")
    assert_same(run(env, 60), run(Gymnasium("CartPole-v1"), 60))


def test_a_vector_environment_that_cannot_reset_within_the_step_is_refused() -> None:
    # Gymnasium's own vector CartPole resets in the next step, and knows of no mask.
    with pytest.raises(motet.BadEnvironment, match="resets in the step after"):
        Gymnasium("CartPole-v1", vector=True)


class Forgetful(SyncVectorEnv):
    """Resets in the same step and forgets the last observation."""

    def step(self, actions: Any) -> Any:
        *step, _ = super().step(actions)
        return *step, {}


def test_a_vector_environment_that_loses_the_last_observation_is_refused() -> None:
    make = partial(vector_of, Noisy, AutoresetMode.SAME_STEP, Forgetful)
    with pytest.raises(motet.BadEnvironment, match="final_obs"):
        run(Gymnasium(make, vector=True), 40)


def test_kinds_of_makers_are_told_apart() -> None:
    make = partial(vector_of, Noisy, AutoresetMode.SAME_STEP, SyncVectorEnv)
    with pytest.raises(motet.BadEnvironment, match=r"Say vector=True"):
        Gymnasium(partial(make, 2))
    with pytest.raises(motet.BadEnvironment, match="Options are for ids"):
        Gymnasium(Noisy, render_mode="human")
    with pytest.raises(motet.BadEnvironment, match="should make a Env of gymnasium, but made a int"):
        Gymnasium(lambda: 3)


def test_an_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(motet.UnknownName, match="Did you mean 'CartPole-v1'"):
        Gymnasium("Cartpole-v1")
    with pytest.raises(motet.BadEnvironment, match="cannot be imported"):
        Gymnasium("no_such_package:Env-v0")


def test_an_id_may_name_its_module() -> None:
    assert Gymnasium("gymnasium.envs:CartPole-v1").action_space == Discrete(2)


def test_an_action_repeat_sums_rewards_up_to_the_end() -> None:
    env = ActionRepeat(Counter(length=5), 3)
    env.reset(seed=0)
    assert env.step(0)[1:4] == (1 + 2 + 3, False, False)
    assert env.step(0)[1:4] == (4 + 5, False, True)


def test_random_starts_differ_and_follow_from_the_seed() -> None:
    def starts(seed: int) -> list[float]:
        env = RandomStart(Counter(length=50), 10)
        return [env.reset(seed=seed)[0][0], *(env.reset()[0][0] for _ in range(10))]

    assert starts(1) == starts(1) != starts(2)
    assert len(set(starts(1))) > 3 and max(starts(1)) <= 10


def test_frame_deltas_are_differences_and_begin_with_the_whole() -> None:
    env = FrameDelta(Counter())
    first = Counter().reset(seed=0)[0]
    np.testing.assert_array_equal(env.reset(seed=0)[0], first)
    np.testing.assert_array_equal([env.step(0)[0][0] for _ in range(3)], 1)


def test_frame_deltas_of_bytes_have_room_for_a_sign() -> None:
    class Flicker(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.Box(0, 255, (1,), np.uint8)

        def look(self) -> Any:
            return np.array([255 * (self.count % 2)], np.uint8)

    env = FrameDelta(Flicker())
    env.reset(seed=0)
    assert [int(env.step(0)[0][0]) for _ in range(3)] == [255, -255, 255]
    assert env.observation_space == gym.Box(-255, 255, (1,), np.int16)


def test_atari_games_are_preprocessed_as_usual() -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from motet.envs.atari import atari

    env = Gymnasium(atari("ALE/Breakout-v5", episodic_life=True))
    assert env.observation_space == Box(0.0, 255.0, (4, 84, 84), "uint8")
    pool = env.open(Opening(0, 2, 0))
    pool.reset()
    generator = np.random.default_rng(0)
    steps = [copied(pool.step((generator.integers(0, 4, 2).astype(np.int32),))) for _ in range(150)]
    assert any(step.terminated.any() for step in steps)
    assert {float(reward) for step in steps for reward in step.reward} <= {-1.0, 0.0, 1.0}
    pool.close()
    with pytest.raises(motet.UnknownName, match="Did you mean 'ALE/Pong-v5'"):
        Gymnasium(atari("ALE/Pongg-v5"))


def test_missing_atari_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from motet.envs.atari import atari

    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(motet.BadEnvironment, match=r"pip install 'motet\[atari\]'"):
        Gymnasium(atari("ALE/Pong-v5"))
    with pytest.raises(motet.BadEnvironment, match="ale-py"):
        Gymnasium("ALE/Pong-v5")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("inner", "outer"), [(3, 7), (7, 3)])
def test_every_time_limit_counts_and_no_other_wrapper_is_left_out(workers: int, inner: int, outer: int) -> None:
    def make() -> gymnasium.Env:
        limited = TimeLimit(TimeLimit(Counter(length=100), inner), outer)
        return TimeLimit(TransformReward(limited, lambda reward: 10 * reward), 5)

    steps = run(Gymnasium(make), 6, workers=workers)
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True, False, False, True]
    assert not any(step.terminated.any() for step in steps)
    assert [float(step.reward[0]) for step in steps] == [10, 20, 30, 10, 20, 30]
