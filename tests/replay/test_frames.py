"""Stacks of pictures: stored once for each picture, and given back exactly."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.errors import BadOption
from motet.flow.values import Transitions
from motet.replay import Prioritised, Uniform
from tests.replay.cases import PLACES, Small, joined, opened, steps

T, B, N = 2, 3, 12
FRAMES = 3
KEY = jax.random.key(13)


class Film:
    """Environments that show a new picture at every step. The first stack of an episode is whatever it is: here
    neither repeated nor zeros."""

    def __init__(self, ending, axis):
        self.rng, self.ending, self.axis = np.random.default_rng(8), ending, axis
        self.stack = self.pictures(B, FRAMES)

    def pictures(self, *front):
        return self.rng.integers(0, 256, (*front, 2, 5)).astype(np.uint8)

    def step(self, first):
        """One step of every environment, [1, B, ...]."""
        after = np.concatenate([self.stack[:, 1:], self.pictures(B, 1)], 1)
        ends, cuts, dead = self.rng.random((3, 1, B)) < self.ending / 3
        one = steps(first, 1, B, ends=ends, cuts=cuts, happened=~dead)
        observed, following = self.shown(self.stack), self.shown(after)
        over = (ends | cuts | dead)[0]
        self.stack = np.where(over[:, None, None, None], self.pictures(B, FRAMES), after)
        return replace(
            one,
            observation={"film": observed, "place": one.observation},
            next_observation={"film": following, "place": one.next_observation},
        )

    def shown(self, stack):
        return np.moveaxis(stack, 1, self.axis)[None]

    def addition(self, first):
        return joined([self.step(first + time) for time in range(T)])


def run(replay, place, ending, *, axis=1, additions=40):
    film, history = Film(ending, axis), []
    store = opened(replay, Film(ending, axis).addition(0), B, place)
    for number in range(additions):
        history.append(film.addition(number * T))
        store.add(history[-1])
        if number > 3:
            yield (number + 1) * T, store.sample(jax.random.fold_in(KEY, number), N, blocks=B), joined(history)
    store.close()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("kind", "axis"), [(Uniform, 1), (Small, 3)])
def test_stacks_come_back_as_they_were(place, kind, axis) -> None:
    """Also at the start and at the end of episodes, in the first round of the ring and in later ones."""
    rows = 26
    for _, drawn, history in run(kind(rows * B, frames=FRAMES), place, ending=0.04, axis=axis):
        row, env = drawn.items.observation["place"].T.astype(int)
        for stored, leaf in zip(jax.tree.leaves(history), jax.tree.leaves(drawn.items), strict=True):
            np.testing.assert_array_equal(leaf, stored[row, env])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [Uniform, Small])
def test_short_episodes_shorten_what_is_drawn_and_break_nothing(place, kind) -> None:
    """Episodes of two steps need twice the pictures there is room for: the oldest rows are no longer drawn."""
    rows, oldest = 26, 26
    for written, drawn, history in run(kind(rows * B, frames=FRAMES), place, ending=0.6, additions=60):
        row, env = drawn.items.observation["place"].T.astype(int)
        for stored, leaf in zip(jax.tree.leaves(history), jax.tree.leaves(drawn.items), strict=True):
            np.testing.assert_array_equal(leaf, stored[row, env])
        if written > 2 * rows:
            oldest = max(written - row.min(), 0)
            assert oldest < rows
    assert oldest > 4


@pytest.mark.parametrize("place", PLACES)
def test_all_options_together(place) -> None:
    """Sequences and n-step transitions of stacks."""
    for written, drawn, history in run(Small(26 * B, frames=FRAMES, sequence=4), place, 0.1, additions=24):
        row, env = drawn.items.observation["place"][:, 0].T.astype(int)
        assert (row <= written - 4).all()
        window = row[:, None] + np.arange(4)
        for stored, leaf in zip(jax.tree.leaves(history), jax.tree.leaves(drawn.items), strict=True):
            np.testing.assert_array_equal(leaf, stored[window, env[:, None]])
    for _, drawn, history in run(Uniform(26 * B, frames=FRAMES, n_step=3), place, 0.1, additions=24):
        row, env = drawn.items.observation["place"].T.astype(int)
        last = row + np.round(np.log(drawn.items.discount) / np.log(0.99)).astype(int) - 1
        for name, at in (("observation", row), ("next_observation", last)):
            np.testing.assert_array_equal(getattr(drawn.items, name)["film"], getattr(history, name)["film"][at, env])


def test_pictures_of_all_three_are_the_same() -> None:
    replay = Small(26 * B, frames=FRAMES)
    runs = [run(replay, place, 0.3) for place in PLACES]
    for (_, one, _), (_, two, _), (_, three, _) in zip(*runs, strict=True):
        for other in (two, three):
            np.testing.assert_array_equal(one.index, other.index)
            np.testing.assert_array_equal(one.items.observation["film"], other.items.observation["film"])


def test_observations_without_stacks_are_refused() -> None:
    with pytest.raises(BadOption, match=r"frames=4 needs observations that stack 4 pictures.*float32\[2,3,2\]"):
        Uniform(100, frames=4).init(steps(0, T, B), B)


@pytest.mark.parametrize("envs", [1, 8, 128, 1024])
@pytest.mark.parametrize("kind", [Uniform, Prioritised])
def test_a_million_atari_transitions_take_at_most_8_gib(envs, kind) -> None:
    scalar = {name: jax.ShapeDtypeStruct((1, envs), dtype) for name, dtype in (("f", jnp.float32), ("b", jnp.bool))}
    stack = jax.ShapeDtypeStruct((1, envs, 84, 84, 4), jnp.uint8)
    action = jax.ShapeDtypeStruct((1, envs), jnp.int32)
    example = Transitions(stack, action, scalar["f"], scalar["b"], stack, scalar["b"], scalar["b"])
    replay = kind(1_000_000, frames=4)
    assert 6 * 2**30 < replay.nbytes(example, envs) <= 8 * 2**30
    assert "GiB in all" in replay.statement(example, envs)
