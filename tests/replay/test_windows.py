"""Items of several steps: equal to what the whole history says, and never drawn before or after they are whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.errors import BadOption
from motet.flow.values import Rollout
from motet.replay import Uniform
from tests.replay.cases import PLACES, Small, compiled, joined, opened, steps

T, B, ROWS, N = 3, 4, 12, 16
GAMMA = 0.9
KEY = jax.random.key(11)


def run(replay, place, additions=14, *, happened=False):
    """Add random episodes; after each addition draw -> (rows written, drawn, history) for each draw."""
    rng = np.random.default_rng(6)

    def new(first):
        ends, cuts, dead = rng.random((3, T, B)) < 0.15
        return steps(first, T, B, ends=ends, cuts=cuts & ~ends, happened=~dead if happened else ())

    history, draws = [], []
    store = opened(replay, new(0), B, place)
    for number in range(additions):
        history.append(new(number * T))
        store.add(history[-1])
        if (number + 1) * T >= replay.window:
            draws.append(((number + 1) * T, store.sample(jax.random.fold_in(KEY, number), N, blocks=B)))
    store.close()
    return draws, joined(history)


def fold(history, row, env, n):
    """The n-step transition from a row on, step by step."""
    reward, count = history.reward[row, env], 1
    happened = np.ones_like(history.terminated) if isinstance(history.valid, tuple) else history.valid
    while count < n:
        before, here = row + count - 1, row + count
        if history.terminated[before, env] or history.truncated[before, env]:
            break
        if not (happened[before, env] and happened[here, env]):
            break
        reward = reward + history.reward[here, env] * np.float32(GAMMA**count)
        count += 1
    return reward, count


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("kind", "happened"), [(Uniform, False), (Small, True)])
def test_n_steps_are_folded_up_to_the_end_of_the_episode(place, kind, happened) -> None:
    n = 4
    draws, history = run(kind(ROWS * B, n_step=n, discount=GAMMA), place, happened=happened)
    seen = set()
    for written, drawn in draws:
        rows, envs = drawn.items.observation.T.astype(int)
        assert (rows >= written - ROWS).all() and (rows <= written - n).all()
        for slot, (row, env) in enumerate(zip(rows, envs, strict=True)):
            reward, count = fold(history, row, env, n)
            last = row + count - 1
            item = jax.tree.map(lambda leaf, slot=slot: leaf[slot], drawn.items)
            assert item.reward == reward
            assert item.discount == np.float32(GAMMA**count)
            assert (item.action, item.terminated) == (history.action[row, env], history.terminated[last, env])
            assert item.truncated == history.truncated[last, env]
            np.testing.assert_array_equal(item.next_observation, history.next_observation[last, env])
            if happened:
                assert item.valid == history.valid[row, env]
            seen.add(count)
        if kind is Small:
            np.testing.assert_array_equal(drawn.index, np.stack([rows, envs], 1))
    assert seen == {1, 2, 3, 4}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [Uniform, Small])
def test_sequences_are_consecutive_steps_of_one_environment(place, kind) -> None:
    length = 5
    draws, history = run(kind(ROWS * B, sequence=length), place)
    for written, drawn in draws:
        rows, envs = drawn.items.observation[:, 0].T.astype(int)
        assert (rows >= written - ROWS).all() and (rows <= written - length).all()
        window = rows[:, None] + np.arange(length)
        for stored, leaf in zip(jax.tree.leaves(history), jax.tree.leaves(drawn.items), strict=True):
            np.testing.assert_array_equal(leaf, stored[window, envs[:, None]])


@pytest.mark.parametrize("kind", [Uniform, Small])
def test_every_whole_item_is_drawn_sooner_or_later(kind) -> None:
    replay = kind(ROWS * B, n_step=4, discount=GAMMA)
    store = opened(replay, steps(0, T, B), B, "xla")
    for first in range(0, 2 * ROWS, T):
        store.add(steps(first, T, B))
    items = [store.sample(jax.random.fold_in(KEY, number), 64, blocks=B).items.observation for number in range(8)]
    found = {(int(row), int(env)) for row, env in np.concatenate(items)}
    assert found == {(row, env) for row in range(ROWS, 2 * ROWS - 3) for env in range(B)}


def test_single_steps_come_back_as_they_were() -> None:
    draws, history = run(Uniform(ROWS * B), "xla")
    for _, drawn in draws:
        rows, envs = drawn.items.observation.T.astype(int)
        assert drawn.items.discount == ()
        for stored, leaf in zip(jax.tree.leaves(history), jax.tree.leaves(drawn.items), strict=True):
            np.testing.assert_array_equal(leaf, stored[rows, envs])


def test_a_state_cut_along_the_environments_falls_into_whole_states() -> None:
    """Every leaf has the environments on one axis, or is the same for all of them; each piece goes on by itself."""
    replay = Small(ROWS * B, n_step=2)
    state, half = replay.init(steps(0, T, B), B), replay.init(jax.tree.map(lambda x: x[:, :2], steps(0, T, B)), B)
    add, _, _ = compiled(replay)
    for first in range(0, 2 * ROWS, T):
        new = steps(first, T, B)
        state, half = add(state, new), add(half, jax.tree.map(lambda x: x[:, :2], new))
    for whole, part in zip(jax.tree.leaves(state), jax.tree.leaves(half), strict=True):
        axes = [axis for axis, (a, b) in enumerate(zip(whole.shape, part.shape, strict=True)) if a != b]
        cut = jax.lax.slice_in_dim(whole, 0, 2, axis=axes[0]) if axes else whole
        np.testing.assert_array_equal(cut, part)


def test_a_rollout_tells_where_it_was_truncated() -> None:
    flags = jnp.zeros((T, B), bool)
    rollout = Rollout((), (), (), flags, flags, ~flags, ())
    assert rollout.transitions.truncated is rollout.truncated


def test_n_steps_of_what_has_no_ends_are_refused() -> None:
    with pytest.raises(BadOption, match=r"n_step=2 needs transitions.*observation"):
        Uniform(100, n_step=2).init({"x": np.zeros((T, B))}, B)
