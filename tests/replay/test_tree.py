"""Sum trees: the same sums and the same walks on the host, in XLA and on OpenCL."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.errors import BadOption
from motet.replay.power import power
from motet.replay.tree import TreeShape
from tests.replay.cases import PLACES, a_tree

N = 16


def entries(rng, columns, leaves, values=None):
    """A batch with duplicates and entries that are left out."""
    column = rng.integers(0, columns, N).astype(np.int32)
    leaf = rng.integers(-1, leaves, N).astype(np.int32)
    value = rng.exponential(size=N).astype(np.float32) if values is None else rng.choice(values, N).astype(np.float32)
    return column, leaf, value


@pytest.mark.parametrize("place", PLACES)
@given(seed=st.integers(0, 2**32 - 1), batches=st.integers(1, 6), case=st.sampled_from([(1, 70, 4), (5, 9, 2)]))
@settings(max_examples=25, deadline=None)
def test_walks_equal_a_running_sum(place, seed, batches, case) -> None:
    """With whole numbers every sum is exact, so one running sum over all leaves tells where each share ends."""
    rng = np.random.default_rng(seed)
    columns, leaves, fan_out = case
    tree = a_tree(place, TreeShape(leaves, fan_out), columns)
    plain = np.zeros((columns, leaves), np.float32)
    for _ in range(batches):
        column, leaf, value = entries(rng, columns, leaves, [0, 1, 2, 7, 64])
        tree.update(column, leaf, value)
        for c, each, v in zip(column, leaf, value, strict=True):
            if each >= 0:
                plain[c, each] = v
        share = np.append(rng.random(N - 1), 1).astype(np.float32)
        column, leaf, value = tree.find(share)
        sums = np.cumsum(plain)
        if not sums[-1]:
            assert not value.any()
            continue
        place_of = np.searchsorted(sums, share * sums[-1], "right")
        place_of = np.minimum(place_of, np.flatnonzero(plain)[-1])
        np.testing.assert_array_equal(column * leaves + leaf, place_of)
        np.testing.assert_array_equal(value, plain.ravel()[place_of])


@pytest.mark.parametrize(
    ("columns", "leaves", "fan_out"), [(1, 5000, 16), (7, 33, 8), (40, 3, 4), (3, 1, 2), (1, 1, 16)]
)
def test_all_three_hold_and_draw_the_same_bits(columns, leaves, fan_out) -> None:
    rng = np.random.default_rng(5)
    trees = [a_tree(place, TreeShape(leaves, fan_out), columns) for place in PLACES]
    for _ in range(8):
        batch = entries(rng, columns, leaves)
        share = np.append(rng.random(N - 1), 1).astype(np.float32)
        for tree in trees:
            tree.update(*batch)
        nodes, found = [tree.array for tree in trees], [tree.find(share) for tree in trees]
        for other in (1, 2):
            np.testing.assert_array_equal(nodes[0], nodes[other])
            for one, two in zip(found[0], found[other], strict=True):
                np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("place", PLACES)
def test_the_last_of_several_entries_for_a_leaf_counts(place) -> None:
    tree = a_tree(place, TreeShape(20, 4), 2)
    column, leaf = np.ones(N, np.int32), np.full(N, 7, np.int32)
    tree.update(column, leaf, np.arange(1, N + 1, dtype=np.float32))
    assert tree.array[1, 0] == N and tree.array[0, 0] == 0


@pytest.mark.parametrize("place", PLACES)
def test_zero_is_never_drawn(place) -> None:
    """Also at the right edge, where rounding may carry a walk beyond the last leaf that is more than zero."""
    rng = np.random.default_rng(1)
    tree = a_tree(place, TreeShape(100, 8), 3)
    for _ in range(40):
        column, leaf, value = entries(rng, 3, 100)
        tree.update(column, leaf, value * rng.integers(0, 2, N).astype(np.float32))
        if tree.array[:, 0].any():
            share = np.concatenate([np.nextafter(1, 0, dtype=np.float32) * np.ones(4), [1] * 4, rng.random(N - 8)])
            assert (tree.find(share.astype(np.float32))[2] > 0).all()


@pytest.mark.parametrize("place", PLACES)
def test_a_million_updates_leave_the_sum_exact(place) -> None:
    """Parents are computed from their children, so what is left is the rounding of one sum."""
    rng = np.random.default_rng(2)
    batch, leaves = 2**15, 4096
    tree = a_tree(place, TreeShape(leaves), 1)
    column = np.zeros(batch, np.int32)
    for _ in range(2**20 // batch):
        value = (10 ** rng.uniform(-3, 3, batch)).astype(np.float32)
        tree.update(column, rng.integers(0, leaves, batch).astype(np.int32), value)
    array, first = tree.array[0], TreeShape(leaves).first_leaf
    np.testing.assert_allclose(array[0], array[first:].sum(dtype=np.float64), rtol=1e-6)


def test_power_is_a_power_and_the_same_in_xla() -> None:
    rng = np.random.default_rng(3)
    base = np.append((10 ** rng.uniform(-12, 12, 20_000)), [0, 1e-44, 1, 3e38]).astype(np.float32)
    for alpha in (0.0, 0.3, 0.6, 1.0):
        result = power(np, base, alpha)
        np.testing.assert_array_equal(result, jax.jit(lambda x, alpha=alpha: power(jnp, x, alpha))(base))
        np.testing.assert_allclose(result[:-4], base[:-4].astype(np.float64) ** alpha, rtol=5e-6)
        np.testing.assert_array_equal(result[-4:-1], [0, 0, 1])
        assert 0 < result[-1] <= 1e30


@pytest.mark.parametrize("fan_out", [0, 1, 6])
def test_a_fan_out_that_is_no_power_of_two_is_refused(fan_out) -> None:
    with pytest.raises(BadOption, match=f"power of two.*got {fan_out}"):
        TreeShape(10, fan_out)
