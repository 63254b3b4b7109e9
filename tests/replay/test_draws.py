"""Replays on the host, in XLA and on OpenCL: what is added, drawn and updated."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from motet.errors import BadOption
from motet.flow.spaces import random_index
from motet.replay import Prioritised, Uniform, draw_bits
from tests.replay.cases import PLACES, Plain, opened, steps

T, B, ROWS, N = 2, 3, 10, 8
KEY = jax.random.key(7)
EXACT = Prioritised(ROWS * B, alpha=1.0, epsilon=0.0, fan_out=4)
"""Priorities count as they are: whole numbers are added without rounding."""


def filled(replay, place, rows=2 * ROWS):
    store = opened(replay, steps(0, T, B), B, place)
    for first in range(0, rows, T):
        store.add(steps(first, T, B))
    return store


@pytest.mark.parametrize("place", PLACES)
@given(data=st.data(), replay=st.sampled_from([EXACT, replace(EXACT, initial=3.0, n_step=3)]))
@settings(max_examples=20, deadline=None)
def test_any_sequence_of_operations_equals_the_plain_replay(place, data, replay) -> None:
    store, plain, index = opened(replay, steps(0, T, B), B, place), Plain(replay, ROWS, B), np.zeros((N, 2), np.int32)
    for operation in data.draw(st.lists(st.sampled_from(["add", "add", "sample", "update"]), max_size=16)):
        if operation == "add":
            store.add(steps(plain.written, T, B))
            plain.add(T)
        elif operation == "update":
            priority = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 64]), min_size=N, max_size=N))
            store.update(index, np.array(priority, np.float32))
            plain.update(index, np.array(priority, np.float32))
        elif any(plain.priority.values()):
            key = jax.random.key(data.draw(st.integers(0, 2**31)))
            drawn = store.sample(key, N)
            index = plain.draw(np.asarray(draw_bits(key, 0, N)))
            np.testing.assert_array_equal(drawn.index, index)
            np.testing.assert_array_equal(drawn.items.observation, index)
        assert store.size == min(plain.written, ROWS) * B
    store.close()


@pytest.mark.parametrize(
    "replay", [Prioritised(90, anneal=40), Prioritised(90, sequence=4, fan_out=4), Uniform(90, n_step=3)], ids=str
)
def test_all_three_draw_the_same(replay) -> None:
    rng = np.random.default_rng(0)
    stores = [opened(replay, steps(0, T, B), B, place) for place in PLACES]
    for first in range(0, 80, T):
        flags = rng.random((2, T, B)) < 0.2
        for store in stores:
            store.add(steps(first, T, B, ends=flags[0], cuts=flags[1]))
        if first < 8:
            continue
        drawn = [store.sample(jax.random.fold_in(KEY, first), 9, blocks=3) for store in stores]
        for other in drawn[1:]:
            without = [jax.tree.leaves(replace(each, weight=())) for each in (drawn[0], other)]
            for one, two in zip(*without, strict=True):
                assert one.dtype == two.dtype
                np.testing.assert_array_equal(one, two)
            np.testing.assert_allclose(drawn[0].weight, other.weight, rtol=1e-5)
        if isinstance(replay, Prioritised):
            priority = rng.exponential(size=9).astype(np.float32)
            for store in stores:
                store.update(drawn[0].index, priority)
                np.testing.assert_array_equal(store.nodes(), stores[0].nodes())


@pytest.mark.parametrize("place", PLACES)
def test_uniform_keeps_its_rule(place) -> None:
    """Slot j draws from its own block of environments with its own key, as it always did."""
    store = opened(Uniform(96), steps(0, T, 6), 6, place)
    for first in range(0, 22, T):
        store.add(steps(first, T, 6))
        drawn = store.sample(KEY, 12, blocks=3)
        keys = jax.vmap(partial(jax.random.fold_in, KEY))(jnp.arange(12))
        draw = np.asarray(jax.vmap(lambda each, first=first: random_index(each, min(first + T, 16) * 2))(keys))
        newest = first + T - 1
        row = newest - (newest - draw // 2) % 16
        np.testing.assert_array_equal(drawn.items.observation, np.stack([row, np.arange(12) // 4 * 2 + draw % 2], 1))
        assert drawn.index == () and drawn.weight == ()


@pytest.mark.parametrize("place", PLACES)
def test_items_are_drawn_in_proportion_to_their_priorities(place) -> None:
    replay = Prioritised(ROWS * B, alpha=0.6, epsilon=0.01, fan_out=4)
    store = filled(replay, place, ROWS)
    index = np.stack(np.meshgrid(np.arange(ROWS), np.arange(B)), -1).reshape(-1, 2).astype(np.int32)
    priority = np.random.default_rng(4).exponential(size=len(index)).astype(np.float32)
    store.update(index, priority)
    count, draws = np.zeros((ROWS, B)), 30 * 64
    for number in range(30):
        drawn = store.sample(jax.random.fold_in(KEY, number), 64)
        np.add.at(count, tuple(drawn.index.T), 1)
    expected = np.zeros((ROWS, B))
    expected[tuple(index.T)] = (priority + 0.01) ** 0.6
    expected *= draws / expected.sum()
    assert stats.chisquare(count.ravel(), expected.ravel()).pvalue > 0.01


@pytest.mark.parametrize("place", PLACES)
def test_uniform_draws_are_uniform(place) -> None:
    store, count = filled(Uniform(ROWS * B), place), np.zeros((ROWS, B))
    for number in range(30):
        items = store.sample(jax.random.fold_in(KEY, number), 66, blocks=3).items
        row, env = items.observation.T.astype(int)
        assert (row >= ROWS).all()  # the older ones are overwritten
        np.add.at(count, (row - ROWS, env), 1)
    assert stats.chisquare(count.ravel()).pvalue > 0.01


@pytest.mark.parametrize("place", PLACES)
def test_weights_make_up_for_the_priorities(place) -> None:
    """(N P) ** -beta over the largest, with beta on its way to last_beta."""
    replay = Prioritised(ROWS * B, alpha=1.0, epsilon=0.0, beta=0.4, last_beta=0.8, anneal=4 * ROWS, fan_out=4)
    store = filled(replay, place)
    row = np.arange(ROWS, 2 * ROWS, dtype=np.int32)
    for env in range(B):
        store.update(np.stack([row, np.full(ROWS, env, np.int32)], 1), row.astype(np.float32))
    drawn = store.sample(KEY, 32)
    chance = drawn.index[:, 0] / (row.sum() * B)
    weight = (ROWS * B * chance) ** -0.6  # half of the way
    np.testing.assert_allclose(drawn.weight, weight / weight.max(), rtol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_updates_of_what_is_gone_are_left_out(place) -> None:
    store = filled(EXACT, place)
    before = store.nodes()
    gone = np.array([[-1, 0], [ROWS - 1, 1], [0, 2], [2 * ROWS, 0]] * 2, np.int32)
    store.update(gone, np.array([np.nan, 5, 5, 5] * 2, np.float32))
    np.testing.assert_array_equal(store.nodes(), before)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_a_bad_priority_is_named_and_changes_nothing(place, value) -> None:
    store = filled(EXACT, place)
    before = store.nodes()
    index = np.array([[-1, 0]] * 5 + [[13, 2]] + [[-1, 0]] * 2, np.int32)
    with pytest.raises(BadOption, match=f"row 13 of environment 2 is {value}"):
        store.update(index, np.full(N, value, np.float32))
    np.testing.assert_array_equal(store.nodes(), before)


def test_the_first_bad_priority_stays_noted() -> None:
    store = filled(EXACT, "xla")
    assert EXACT.complaint(store.state) is None
    for row, value in ((12, np.nan), (13, np.inf)):
        with pytest.raises(BadOption, match="row 12 of environment 1 is nan"):
            store.update(np.array([[row, 1]] * N, np.int32), np.full(N, value, np.float32))


@pytest.mark.parametrize("place", ["host", "opencl"])
@pytest.mark.parametrize("replay", [Uniform(ROWS * B), EXACT, Uniform(ROWS * B, n_step=5)], ids=str)
def test_drawing_from_nothing_is_an_error(place, replay) -> None:
    store = opened(replay, steps(0, T, B), B, place)
    with pytest.raises(BadOption, match="nothing to draw"):
        store.sample(KEY, N)
    if replay.window > T:
        store.add(steps(0, T, B))
        with pytest.raises(BadOption, match="of which an item takes 5 in a row"):
            store.sample(KEY, N)


def test_drawing_from_nothing_inside_a_program_says_no_item() -> None:
    drawn = opened(EXACT, steps(0, T, B), B, "xla").sample(KEY, N)
    assert (drawn.index[:, 0] == -1).all() and not drawn.weight.any()


@pytest.mark.parametrize("place", PLACES)
def test_another_shape_or_type_is_refused_by_name(place) -> None:
    store = filled(Uniform(ROWS * B), place)
    good = steps(0, T, B)
    for name, leaf in (("reward", good.reward.astype(np.float16)), ("observation", np.zeros((T, B, 5), np.float32))):
        with pytest.raises(BadOption, match=f"{name} should be"):
            store.add(replace(good, **{name: leaf}))
    with pytest.raises(BadOption, match="built like its example"):
        store.add(replace(good, valid=good.terminated))
    with pytest.raises(BadOption, match="observation should be"):
        store.add(steps(0, T + 1, B))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"n_step": 0}, "n_step must be at least 1"),
        ({"n_step": 2, "sequence": 2}, "Leave one of them out"),
        ({"alpha": 1.5}, "alpha must be from 0 to 1"),
        ({"epsilon": -1.0}, "epsilon must be at least 0"),
        ({"initial": 0.0}, "initial must be a number above 0"),
        ({"fan_out": 12}, "power of two"),
    ],
)
def test_options_out_of_range_are_refused(options, message) -> None:
    with pytest.raises(BadOption, match=message):
        Prioritised(**{"capacity": 10, **options})


def test_too_small_a_capacity_is_refused() -> None:
    with pytest.raises(BadOption, match="capacity of at least 6"):
        Uniform(5).init(steps(0, T, B), B)
    with pytest.raises(BadOption, match="5 consecutive steps; give it a capacity of at least 18"):
        Uniform(12, n_step=5).init(steps(0, T, B), B)
