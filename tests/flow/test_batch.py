"""Statistics over the whole batch are the same however it is cut, and so are their gradients."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from jax.sharding import AxisType, PartitionSpec

import motet
from motet.flow.batch import SHARDS, Scope, row_keys, trace_in
from motet.flow.reduction.marks import takes_statistics

N = 12
X64 = jnp.result_type(float) == np.float64
EXACT = {"rtol": 1e-12, "atol": 1e-12} if X64 else {"rtol": 2e-5, "atol": 1e-6}


def batch() -> dict[str, Any]:
    chance = np.random.default_rng(1)
    return {
        "x": chance.normal(size=N),
        "rollout": chance.normal(size=(3, N)),
        "weight": np.where(np.arange(N) % 3 == 0, 0.0, chance.uniform(size=N)),
        "mask": np.arange(N) % 5 < 1 + np.arange(N) // 3,
        "action": chance.integers(0, 3, N),
    }


def shuffled(value: Any, axis: int, parts: int, blocks: int) -> np.ndarray:
    """Rows of the whole batch in the order in which pieces hold them: of each block every piece has its share."""
    shape = value.shape
    cut = value.reshape(*shape[:axis], blocks, parts, shape[axis] // blocks // parts, *shape[axis + 1 :])
    return np.swapaxes(cut, axis, axis + 1).reshape(shape)


def sharded(function: Callable[..., Any], names: tuple[str, ...], parts: int, blocks: int = 1) -> Any:
    """What the pieces compute, side by side on a mesh as a sharded fragment does: stacked, one entry a piece."""
    values = {name: jnp.asarray(value) for name, value in batch().items()}
    axes = [1 if name == "rollout" else 0 for name in names]
    pieces = [jnp.asarray(shuffled(values[n], axis, parts, blocks)) for n, axis in zip(names, axes, strict=True)]
    local = [np.split(np.asarray(each), parts, axis)[0] for each, axis in zip(pieces, axes, strict=True)]
    around = Scope(Fraction(parts), sharded=True, blocks={N // parts: blocks})
    code = trace_in(around, function, *map(jnp.asarray, local))
    assert takes_statistics(code.jaxpr)
    mesh = jax.make_mesh((parts,), (SHARDS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:parts])
    specs = tuple(PartitionSpec(*[None] * axis, SHARDS) for axis in axes)
    run = jax.shard_map(
        lambda *leaves: [leaf[None] for leaf in jaxpr_as_fun(code)(*leaves)],
        mesh=mesh, in_specs=specs, out_specs=PartitionSpec(SHARDS), check_vma=False,
    )  # fmt: skip
    return [np.asarray(leaf) for leaf in jax.jit(run)(*pieces)]


STATISTICS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mean": (lambda x: motet.batch_mean(x), lambda x: np.mean(x)),
    "mean of ints": (lambda action: motet.batch_mean(action), lambda action: np.mean(action)),
    "weighted mean": (lambda x, weight: motet.batch_mean(x, weight), lambda x, w: np.sum(x * w) / np.sum(w)),
    "masked mean": (lambda x, mask: motet.batch_mean(x, mask), lambda x, mask: np.mean(x[mask])),
    "sum": (lambda x: motet.batch_sum(x), np.sum),
    "count": (lambda mask: motet.batch_sum(mask), np.sum),
    "largest": (lambda x: motet.batch_max(x), np.max),
    "smallest": (lambda x: motet.batch_min(x), np.min),
    "moments": (lambda x: motet.batch_moments(x), lambda x: (np.mean(x), np.var(x))),
    "weighted moments": (
        lambda x, weight: motet.batch_moments(x, weight),
        lambda x, w: (m := np.average(x, weights=w), np.average((x - m) ** 2, weights=w)),
    ),
    "along the rows": (lambda rollout: motet.batch_mean(rollout, axis=1), lambda x: np.mean(x, 1)),
    "largest along the rows": (lambda rollout: motet.batch_max(rollout, axis=1), lambda x: np.max(x, 1)),
    "gather": (lambda x: motet.batch_gather(x), lambda x: x),
    "gather of ints": (lambda action: motet.batch_gather(action), lambda x: x),
    "gather of truths": (lambda mask: motet.batch_gather(mask), lambda x: x),
    "gather of a rollout": (lambda rollout: motet.batch_gather(rollout, axis=1), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("case", STATISTICS)
def test_every_piece_has_the_statistic_of_the_whole_batch(case: str, parts: int) -> None:
    ours, numpys = STATISTICS[case]
    names = ours.__code__.co_varnames[: ours.__code__.co_argcount]
    expected = jax.tree.leaves(numpys(*(batch()[name] for name in names)))
    if parts == 1:
        found = [np.asarray(leaf)[None] for leaf in jax.tree.leaves(ours(*(jnp.asarray(batch()[n]) for n in names)))]
    else:
        found = sharded(ours, names, parts)
    for leaf, whole in zip(found, expected, strict=True):
        assert len(leaf) == parts
        for piece in leaf:
            np.testing.assert_allclose(piece, whole, **EXACT)
            assert np.issubdtype(piece.dtype, np.integer) == (case in ("count", "gather of ints"))


@pytest.mark.parametrize(("parts", "blocks"), [(2, 1), (4, 1), (2, 3), (2, 6), (1, 1)])
def test_ranks_count_what_comes_before_in_the_whole_batch(parts: int, blocks: int) -> None:
    for name in ("x", "action"):  # actions are often equal
        value = batch()[name]
        before = value[None] < value[:, None]
        earlier = (value[None] == value[:, None]) & (np.arange(N)[None] < np.arange(N)[:, None])
        expected = np.sum(before | earlier, 1)
        if parts == 1:
            found = np.asarray(motet.batch_ranks(jnp.asarray(value)))
        else:
            found = sharded(motet.batch_ranks, (name,), parts, blocks)[0].reshape(-1)
        np.testing.assert_array_equal(found, shuffled(expected, 0, parts, blocks))
        assert found.dtype == np.int32


@pytest.mark.parametrize(("parts", "blocks"), [(2, 3), (2, 6), (3, 2), (4, 3)])
def test_rows_come_in_the_order_of_the_whole_batch(parts: int, blocks: int) -> None:
    for piece in sharded(motet.batch_gather, ("x",), parts, blocks)[0]:
        np.testing.assert_array_equal(piece, jnp.asarray(batch()["x"]))


def test_ranks_of_a_rollout_go_over_time_and_environments() -> None:
    values = batch()["rollout"]
    expected = np.argsort(np.argsort(values.reshape(-1), kind="stable")).reshape(values.shape)
    whole = motet.batch_ranks(jnp.asarray(values), axis=1)
    pieces = sharded(lambda rollout: motet.batch_ranks(rollout, axis=1), ("rollout",), 2)[0]
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(np.concatenate(list(pieces), 1), expected)


LOSSES: dict[str, Callable[..., Any]] = {
    "a distance from the mean": lambda z: jnp.mean(jnp.square(z - motet.batch_mean(z))),
    "a variance": lambda z: motet.batch_moments(z)[1],
    "a weighted mean": lambda z: jnp.sin(motet.batch_mean(z, z**2)),
    "a largest": lambda z: motet.batch_max(z) ** 2 + jnp.mean(z),
    "a smallest": lambda z: jnp.mean(z - motet.batch_min(z)),
    "all pairs": lambda z: jnp.mean(jax.nn.logsumexp(z[:, None] * motet.batch_gather(z)[None], -1)),
    "a share": lambda z: jnp.mean(jnp.exp(z) / motet.batch_sum(jnp.exp(z)) * z),
    "a rank": lambda z: jnp.mean(z * motet.batch_ranks(z)),
}


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("case", LOSSES)
def test_gradients_of_pieces_average_to_that_of_the_whole_batch(case: str, parts: int) -> None:
    def gradient(x: Any) -> Any:
        return jax.grad(lambda w: LOSSES[case](jnp.tanh(w[0] * x + w[1])))(jnp.asarray([0.7, -0.3]))

    whole = gradient(jnp.asarray(batch()["x"]))
    assert np.abs(whole).max() > 1e-3
    np.testing.assert_allclose(np.mean(sharded(gradient, ("x",), parts)[0], 0), whole, **EXACT)


def test_where_nothing_counts_the_mean_is_0_and_so_is_its_gradient() -> None:
    none, values = jnp.zeros(3, bool), jnp.asarray([1.0, jnp.nan, jnp.inf])
    assert motet.batch_mean(values, none) == 0
    assert not jax.grad(lambda x: motet.batch_mean(x, none))(values).any()


def test_what_does_not_count_may_be_anything() -> None:
    values, weight = jnp.asarray([1.0, jnp.nan, 3.0]), jnp.asarray([1.0, 0.0, 3.0])
    assert motet.batch_mean(values, weight) == 2.5
    np.testing.assert_array_equal(jax.grad(lambda x: motet.batch_mean(x, weight))(values), [0.25, 0, 0.75])


def test_equal_largest_values_share_the_gradient() -> None:
    np.testing.assert_array_equal(jax.grad(motet.batch_max)(jnp.asarray([2.0, 1.0, 2.0])), [0.5, 0, 0.5])


@pytest.mark.parametrize("wrong", [0, (0, 1), np.zeros(3)])
def test_a_weight_is_of_the_shape_of_the_values(wrong: Any) -> None:
    with pytest.raises(motet.BadAlgorithm, match=r"an array of the shape of the values, \(2, 3\).*axis=\(0, 1\)"):
        motet.batch_mean(jnp.zeros((2, 3)), wrong)


@pytest.mark.parametrize(("parts", "blocks"), [(1, 1), (2, 1), (2, 3), (4, 3), (3, 2)])
def test_a_row_has_the_same_key_in_every_cut(parts: int, blocks: int) -> None:
    key = jax.random.key(3)
    whole = np.asarray(jax.random.key_data(row_keys(key, jnp.int32(0), N, 1, Fraction(1))))
    assert len(np.unique(whole, axis=0)) == N
    np.testing.assert_array_equal(whole, [jax.random.key_data(jax.random.fold_in(key, row)) for row in range(N)])
    pieces = [row_keys(key, jnp.int32(part), N // parts, blocks, Fraction(parts)) for part in range(parts)]
    found = np.concatenate([jax.random.key_data(piece) for piece in pieces])
    np.testing.assert_array_equal(found, shuffled(whole, 0, parts, blocks))


def test_what_was_traced_in_other_surroundings_is_not_used_again() -> None:
    """JAX remembers what an inner function was for arguments of the same shapes."""
    inner = jax.jit(lambda x: motet.batch_mean(x))
    values = jnp.arange(8.0)
    one, twice, half = Scope(), Scope(Fraction(2), sharded=True), Scope(Fraction(1, 2))
    traces = [str(trace_in(each, lambda x: inner(x), values)) for each in (one, half, twice, half, one)]
    assert [trace.count("psum") for trace in traces] == [0, 0, 1, 0, 0]
    assert all(f"{count}.0:" in trace for trace, count in zip(traces, (8, 4, 16, 4, 8), strict=True))
    assert traces[0] == traces[4] != traces[1] == traces[3]


def test_a_statistic_inside_of_another_function_is_seen() -> None:
    inner = jax.jit(lambda x: motet.batch_mean(x))
    for _ in range(2):  # the second time, JAX knows it already
        assert takes_statistics(trace_in(Scope(), lambda x: jax.lax.map(inner, x), jnp.zeros((3, 8))).jaxpr)
    assert not takes_statistics(trace_in(Scope(), lambda x: jnp.mean(x), jnp.zeros(8)).jaxpr)


def test_a_choice_row_by_row_does_not_compute_what_no_row_wants() -> None:
    done = []

    def compute() -> Any:
        jax.debug.callback(lambda: done.append(1), ordered=True)
        return {"one": x + 1, "many": jnp.ones((4, 2))}

    x = jnp.arange(4.0)
    otherwise = {"one": x, "many": jnp.zeros((4, 2))}
    some = jax.jit(lambda mask: motet.where_any(mask, compute, otherwise))(x > 2)
    jax.effects_barrier()
    assert done == [1]
    np.testing.assert_array_equal(some["one"], [0, 1, 2, 4])
    np.testing.assert_array_equal(some["many"], [[0, 0], [0, 0], [0, 0], [1, 1]])
    none = jax.jit(lambda mask: motet.where_any(mask, compute, otherwise))(x > 9)
    jax.effects_barrier()
    assert done == [1]
    np.testing.assert_array_equal(none["one"], x)


def test_what_is_over_the_batch_may_not_be_skipped() -> None:
    x = jnp.arange(4.0)
    for statistic in (motet.batch_mean, motet.batch_gather, motet.batch_max):
        with pytest.raises(motet.BadAlgorithm, match="compute it before"):
            motet.where_any(x > 2, lambda statistic=statistic: x - statistic(x), x)
    mean = motet.batch_mean(x)
    np.testing.assert_array_equal(motet.where_any(x > 2, lambda: x - mean, x), [0, 1, 2, 1.5])
