"""One suite for every family of environments: seeds, episode ends, true final observations, resets, statistics.

Whatever an environment is written in, here it is a pool of NumPy arrays. Some of its environments act so that the task
ends, the others so that it does not: their episodes run into a short time limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from motet.envs import make
from motet.envs.brax import Brax
from motet.envs.cartpole import CartPole
from motet.envs.envpool import EnvPool
from motet.envs.examine import examine
from motet.envs.families import FAMILIES
from motet.envs.gymnasium import Gymnasium
from motet.envs.playground import Playground
from motet.envs.pool import open_pool
from motet.envs.wrappers import LimitDuration
from motet.flow.host import HostEnvironment, Opening
from motet.flow.spaces import Discrete
from tests.sharing import sharing

LIMIT, LONG = 12, 400
BATCH, STEPS, SEED = 4, 50, 7
ENDING = np.arange(BATCH) % 2 == 0
"""The environments that act so that their task ends."""


@dataclass(frozen=True)
class Case:
    """How to make an environment with a time limit, and what is known of it."""

    make: Callable[[int], Any]
    workers: int = 0
    final: Callable[[np.ndarray], np.ndarray] | None = None
    """Which observations [N, ...] can only be the last of a task that ended; None: the task never ends here."""
    fresh: float = np.inf
    """The largest number in an episode's first observation."""
    foretells: Callable[[np.ndarray], np.ndarray] | None = None
    """From observations to what is certain of the next ones, in the elements 0 and 2."""
    gymnasium: bool = False
    """It should do what Gymnasium does, number by number."""


def fell(observation: np.ndarray) -> np.ndarray:
    return (np.abs(observation[:, 0]) > 2.4) | (np.abs(observation[:, 2]) > np.radians(12) - 1e-6)


def glides(observation: np.ndarray) -> np.ndarray:
    """Positions move by the speeds that were observed, whatever is done."""
    return observation[:, [0, 2]] + 0.02 * observation[:, [1, 3]]


def vector(mode: AutoresetMode, limit: int, count: int) -> SyncVectorEnv:
    one = partial(gymnasium.make, "CartPole-v1", max_episode_steps=limit)
    return SyncVectorEnv([one] * count, autoreset_mode=mode)


def vector_case(mode: AutoresetMode) -> Case:
    return cartpole(lambda limit: Gymnasium(partial(vector, mode, limit), vector=True), gymnasium=True)


cartpole = partial(Case, final=fell, fresh=0.05, foretells=glides)
CASES = {
    "JAX twin": cartpole(lambda limit: LimitDuration(CartPole(), limit)),
    "gymnax": cartpole(lambda limit: LimitDuration(make("gymnax/CartPole-v1"), limit)),
    "brax": Case(
        lambda limit: LimitDuration(Brax("inverted_pendulum", "spring"), limit),
        final=lambda observation: np.abs(observation[:, 1]) > 0.2,
        fresh=0.0101,
    ),
    "playground": Case(lambda limit: LimitDuration(Playground("CartpoleBalance"), limit)),
    "EnvPool": cartpole(lambda limit: EnvPool("CartPole-v1", max_episode_steps=limit)),
    "EnvPool, two threads": cartpole(lambda limit: EnvPool("CartPole-v1", max_episode_steps=limit), workers=2),
    "EnvPool, images": Case(lambda limit: EnvPool("Pong-v5", max_episode_steps=limit)),
    "EnvPool, several parts": Case(lambda limit: EnvPool("FetchReach-v4", max_episode_steps=limit)),
    "Gymnasium": cartpole(lambda limit: Gymnasium("CartPole-v1", max_episode_steps=limit), gymnasium=True),
    "Gymnasium, workers": cartpole(
        lambda limit: Gymnasium("CartPole-v1", max_episode_steps=limit), workers=2, gymnasium=True
    ),
    "MuJoCo": Case(lambda limit: Gymnasium("HalfCheetah-v5", max_episode_steps=limit)),
    "vector, next step": vector_case(AutoresetMode.NEXT_STEP),
    "vector, same step": vector_case(AutoresetMode.SAME_STEP),
    "vector, disabled": vector_case(AutoresetMode.DISABLED),
}

MARKS = {
    "brax": [
        pytest.mark.skipif(not FAMILIES["brax"].installed, reason=f"brax is missing: {FAMILIES['brax'].install}"),
        pytest.mark.filterwarnings("ignore:Brax System"),  # that it is no longer maintained
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its own, of what it uses
    ],
    "playground": [
        pytest.mark.skipif(
            not FAMILIES["playground"].installed, reason=f"playground is missing: {FAMILIES['playground'].install}"
        ),
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    ],
}


def over(names) -> Any:
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[*MARKS.get(name, []), sharing(name)]) for name in names]
    )


every_case = over(CASES)


@cache
def environment(name: str, limit: int = LIMIT) -> Any:
    return CASES[name].make(limit)


def actions(env: Any, first: int, count: int) -> np.ndarray:
    """[T, B, ...] One and the same action ends these tasks; two in turn do not."""
    time, index = np.meshgrid(np.arange(STEPS), first + np.arange(count), indexing="ij")
    choice = np.where(ENDING[index], 1, time % 2)
    if isinstance(env.action_space, Discrete):
        return choice.astype(np.int32)
    low, high = (bound.astype(np.float64) for bound in env.action_space.bounds)
    sides = np.where(choice.reshape(STEPS, count, *[1] * low.ndim) == 1, high, low)
    return sides.astype(env.action_space.aval.dtype)


@cache
def play(name: str, limit: int = LIMIT, seed: int = SEED, first: int = 0, count: int = BATCH) -> dict[str, Any]:
    """What STEPS steps gave: leaves [T, B, ...], those of `before` are the observations that were acted on."""
    env = environment(name, limit)
    workers = min(CASES[name].workers, count)
    pool = open_pool(env, Opening(first, count, seed, workers))
    rows: list[dict[str, Any]] = []
    try:
        observation = tuple(leaf.copy() for leaf in pool.reset())
        for action in actions(env, first, count):
            step = pool.step((action,))
            row = {"before": observation, **jax.tree.map(np.array, step._asdict())}
            observation = row["observation"]
            rows.append(row)
    finally:
        pool.close()
        pool.close()
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


def ended(played: dict[str, Any]) -> np.ndarray:
    return played["terminated"] | played["truncated"]


@every_case
def test_the_same_seed_gives_the_same_trajectory_and_another_one_does_not(name):
    again = play.__wrapped__(name)
    jax.tree.map(np.testing.assert_array_equal, play(name), again)
    other = play(name, seed=SEED + 1)
    same = [np.array_equal(a, b) for a, b in zip(play(name)["before"], other["before"], strict=True)]
    assert not all(same)


@every_case
def test_values_have_the_shapes_and_types_of_their_spaces(name):
    env, played = environment(name), play(name)
    expected = [((STEPS, BATCH, *aval.shape), aval.dtype) for aval in jax.tree.leaves(env.observation_space.aval)]
    for what in ("before", "observation", "next_observation"):
        assert [(leaf.shape, leaf.dtype) for leaf in played[what]] == expected
    assert played["reward"].shape == (STEPS, BATCH) and played["reward"].dtype.kind == "f"
    for what in ("terminated", "truncated", "valid"):
        assert played[what].shape == (STEPS, BATCH) and played[what].dtype == bool
    assert played["valid"].all() and not played["restarts"].any()


@every_case
def test_nothing_is_found_by_an_examination(name):
    seen = examine(environment(name), steps=2 * LIMIT)
    assert seen.findings == []
    assert seen.truncated > 0


@every_case
def test_episodes_end_in_both_ways_and_are_told_apart(name):
    played = play(name)
    lengths = lengths_of(played)
    assert played["truncated"].any()
    np.testing.assert_array_equal(lengths[played["truncated"]], LIMIT)
    assert lengths.max() == LIMIT
    if CASES[name].final:
        assert played["terminated"][:, ENDING].any() and not played["truncated"][:, ENDING].all()
        assert np.all(lengths[played["terminated"]] < LIMIT)
    else:
        assert not played["terminated"].any()
    assert not (played["terminated"] & played["truncated"]).any()


def lengths_of(played: dict[str, Any]) -> np.ndarray:
    """[T, B] How many steps the episode has had after each step."""
    length, rows = np.zeros(BATCH, int), []
    for over in ended(played):
        length = length + 1
        rows.append(length)
        length = np.where(over, 0, length)
    return np.stack(rows)


@every_case
def test_the_final_observation_of_a_cut_episode_is_what_an_environment_without_the_limit_gives(name):
    short, endless = play(name), play(name, limit=LONG)
    at_limit = short["truncated"][LIMIT - 1]
    assert at_limit.any()
    assert not ended(endless)[:LIMIT][:, at_limit].any(), "without the limit, the episode must go on"
    for mine, true in zip(short["next_observation"], endless["next_observation"], strict=True):
        np.testing.assert_array_equal(mine[:LIMIT][:, at_limit], true[:LIMIT][:, at_limit])
    differs = [
        (last[LIMIT - 1][at_limit] != first[LIMIT - 1][at_limit]).any()
        for last, first in zip(short["next_observation"], short["observation"], strict=True)
    ]
    assert any(differs), "the new episode must begin with an observation of its own"


@over(name for name, case in CASES.items() if case.final)
def test_the_final_observation_of_a_task_that_ended_is_one(name):
    case, played = CASES[name], play(name)
    terminated = played["terminated"]
    assert case.final(played["next_observation"][0][terminated]).all()
    assert not case.final(played["next_observation"][0][~terminated]).any()
    assert not case.final(played["observation"][0].reshape(STEPS * BATCH, -1)).any()


@every_case
def test_a_reset_happens_in_the_same_step_and_no_other(name):
    case, played = CASES[name], play(name)
    over = ended(played)
    for now, true in zip(played["observation"], played["next_observation"], strict=True):
        np.testing.assert_array_equal(now[~over], true[~over])
    first = played["observation"][0][over]
    assert np.all(np.abs(first.astype(float)) <= case.fresh)
    if np.isfinite(case.fresh):
        assert len(np.unique(first, axis=0)) == len(first), "every episode must begin anew"


@over(name for name, case in CASES.items() if case.foretells)
def test_every_step_is_a_real_one_also_the_first_of_an_episode(name):
    played, foretell = play(name), CASES[name].foretells
    before, after = (played[what][0].reshape(STEPS * BATCH, -1) for what in ("before", "next_observation"))
    np.testing.assert_allclose(after[:, [0, 2]], foretell(before), atol=1e-6)
    assert np.all(played["reward"] == 1)


@every_case
def test_pieces_equal_the_whole(name):
    pieces = [play(name, first=first, count=BATCH // 2) for first in (0, BATCH // 2)]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *pieces)
    exact = isinstance(environment(name), HostEnvironment)
    near = {} if exact else {"rtol": 1e-5, "atol": 1e-6}  # Compiled code rounds differently in another batch.
    compare = np.testing.assert_array_equal if exact else partial(np.testing.assert_allclose, **near)
    for what, value in play(name).items():
        jax.tree.map(compare, joined[what], value)


def gymnasium_plays(seeds: list[int], commands: np.ndarray) -> dict[str, np.ndarray]:
    """The same in plain Gymnasium, with its own statistics, reset by hand."""
    columns = []
    for index, seed in enumerate(seeds):
        limited = gymnasium.make("CartPole-v1", max_episode_steps=LIMIT)
        env = gymnasium.wrappers.RecordEpisodeStatistics(limited)
        observation, _ = env.reset(seed=seed)
        column = []
        for action in commands[:, index]:
            true, reward, terminated, truncated, info = env.step(int(action))
            statistics = (info["episode"]["r"], info["episode"]["l"]) if "episode" in info else (0, 0)
            observation = env.reset()[0] if terminated or truncated else true
            column.append((observation, true, reward, terminated, truncated, *statistics))
        env.close()
        columns.append([np.array(values) for values in zip(*column, strict=True)])
    names = ("observation", "next_observation", "reward", "terminated", "truncated", "return", "length")
    return {name: np.stack(values, 1) for name, *values in zip(names, *columns, strict=True)}


@over(name for name, case in CASES.items() if case.gymnasium)
def test_steps_and_statistics_are_gymnasiums(name):
    played = play(name)
    opening = Opening(0, BATCH, SEED)
    seeds = [opening.seed_of(index) for index in range(BATCH)]
    expected = gymnasium_plays(seeds, actions(environment(name), 0, BATCH))
    for what in ("observation", "next_observation"):
        np.testing.assert_array_equal(played[what][0], expected[what])
    for what in ("reward", "terminated", "truncated"):
        np.testing.assert_array_equal(played[what], expected[what])
    over = ended(played)
    np.testing.assert_array_equal(np.where(over, lengths_of(played), 0), expected["length"])
    np.testing.assert_allclose(np.where(over, lengths_of(played), 0), expected["return"])  # +1 a step
