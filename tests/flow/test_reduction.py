"""What is said of a function's results holds: pieces of them, combined so, are the results of the whole batch.

Every function here is analysed, and then run on a whole batch and on pieces of it. Where the analysis says how the
pieces combine, combining them must give the whole batch's result; where it says that nothing does, averaging must not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import nn

from motet.flow.batch import where_any
from motet.flow.combine import join
from motet.flow.reduction import ROWS, SAME, Share, find
from motet.flow.reduction.shapes import relaid

N, STEPS, FEATURES, ACTIONS = 12, 3, 4, 5


def data() -> dict[str, Any]:
    """A batch of every form; the rows are on the last dimension of `rollout`'s first two, else on the first."""
    chance = np.random.default_rng(0)
    return {
        "x": chance.normal(size=N),
        "features": chance.normal(size=(N, FEATURES)),
        "rollout": chance.normal(size=(STEPS, N, FEATURES)),
        "action": chance.integers(0, ACTIONS, N),
        "mask": np.arange(N) % 5 < 1 + np.arange(N) // 3,
        "w": chance.normal(size=(FEATURES, ACTIONS)),
        "table": chance.normal(size=(ACTIONS, 2)),
        "flag": np.asarray(True),
    }


AXES = {"x": 0, "features": 0, "rollout": 1, "action": 0, "mask": 0}


def shares(function: Callable[..., Any], rows: tuple[int, int] = (N, 2 * N)) -> list[Share]:
    """What the analysis says of each result; a function's parameters are called as the data that it takes."""
    names = tuple(inspect.signature(function).parameters)
    batch = data()

    def traced(count: int) -> Any:
        def sized(name: str) -> Any:
            value = jnp.asarray(batch[name])
            shape = tuple(count if AXES.get(name) == axis else size for axis, size in enumerate(value.shape))
            return jax.ShapeDtypeStruct(shape, value.dtype)

        return jax.make_jaxpr(function)(*map(sized, names))

    known = [ROWS if name in AXES else SAME for name in names]
    return find(*map(traced, rows), known, Fraction(*rows))


def run(function: Callable[..., Any], parts: int) -> list[list[np.ndarray]]:
    """The results of each piece."""
    names = tuple(inspect.signature(function).parameters)
    batch = data()

    def piece(name: str, index: int) -> Any:
        return np.split(batch[name], parts, AXES[name])[index] if name in AXES else batch[name]

    results = [function(*(jnp.asarray(piece(name, index)) for name in names)) for index in range(parts)]
    return [[np.asarray(leaf) for leaf in jax.tree.leaves(result)] for result in results]


def combined(found: list[Share], parts: int, function: Callable[..., Any]) -> list[np.ndarray]:
    """The pieces' results, combined as the analysis says."""
    pieces = zip(*run(function, parts), strict=True)
    return [join(s.combine, leaves) if s.combine else leaves[0] for s, leaves in zip(found, pieces, strict=True)]


def loss(w: Any, features: Any, action: Any) -> Any:
    logits = jnp.tanh(features @ w)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, action))


def scanned(w: Any, rollout: Any) -> Any:
    """A recurrent network's loss."""

    def step(memory: Any, now: Any) -> Any:
        memory = jnp.tanh(memory + now @ w)
        return memory, memory

    return jnp.mean(jnp.square(jax.lax.scan(step, jnp.zeros((rollout.shape[1], ACTIONS)), rollout)[1]))


def convolved(w: Any, features: Any) -> Any:
    kernel = w.reshape(2, 2, 1, 5)
    out = jax.lax.conv_general_dilated(
        features.reshape(-1, 2, 2, 1), kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.mean(nn.relu(flax.linen.max_pool(out, (2, 2), (1, 1))))


COMBINED: dict[str, tuple[Callable[..., Any], str | None]] = {
    "a mean": (lambda x: jnp.mean(x), "mean"),
    "a sum": (lambda x: jnp.sum(x), "sum"),
    "a largest": (lambda x: jnp.max(x), "max"),
    "a smallest": (lambda x: jnp.min(x), "min"),
    "any": (lambda mask: jnp.any(mask), "any"),
    "all": (lambda mask: jnp.all(mask), "all"),
    "a count": (lambda mask: jnp.sum(mask), "sum"),
    "the number of rows": (lambda x: jnp.asarray(x.shape[0]), "sum"),
    "nothing of the batch": (lambda x, w: jnp.sum(w**2), None),
    "zero": (lambda x: jnp.zeros(3), None),
    "a mean with a penalty": (lambda x, w: jnp.mean(x) + 0.1 * jnp.sum(w**2), "mean"),
    "one minus a mean": (lambda x: 1 - jnp.mean(x), "mean"),
    "a mean of rows and more": (lambda rollout: jnp.mean(rollout), "mean"),
    "a mean of each feature": (lambda features: jnp.mean(features, 0), "mean"),
    "a mean by hand": (lambda x: jnp.sum(x / x.shape[0]), "mean"),
    "a mean of shares": (lambda x: jnp.sum(x * (1 / x.shape[0])), "mean"),
    "a mean over nearly all": (lambda x: jnp.sum(x) / max(x.shape[0], 1), "mean"),
    "a mean of squares": (lambda x: jnp.mean(jnp.square(x - 2)), "mean"),
    "an average of a test": (lambda x: jnp.mean((x > 0).astype(float)), "mean"),
    "a weighted sum": (lambda x, mask: jnp.sum(mask * x), "sum"),
    "a mean with gaps": (lambda x, mask: jnp.mean(jnp.where(mask, x, 0)), "mean"),
    "a huber loss": (lambda x: jnp.mean(optax.huber_loss(x)), "mean"),
    "a gradient of a mean": (jax.grad(loss), "mean"),
    "a gradient of a sum": (lambda w, features: jax.grad(lambda w: jnp.sum(jnp.tanh(features @ w)))(w), "sum"),
    "a gradient with a penalty": (
        lambda w, features: jax.grad(lambda w: jnp.mean(jnp.tanh(features @ w)) + jnp.sum(w**2))(w), "mean",
    ),
    "a gradient of each row": (
        lambda w, features: jnp.mean(
            jax.vmap(jax.grad(lambda w, row: jnp.sum(jnp.tanh(row @ w))), (None, 0))(w, features), 0
        ), "mean",
    ),
    "a recurrent gradient": (jax.grad(scanned), "mean"),
    "a gradient that forgets": (jax.grad(jax.checkpoint(loss)), "mean"),
    "a convolution's gradient": (jax.grad(convolved), "mean"),
    "flat rows": (lambda w, rollout: jax.grad(lambda w: jnp.mean(rollout.reshape(-1, FEATURES) @ w))(w), "mean"),
    "two batches at once": (
        lambda w, features: jnp.mean(
            jnp.square(jnp.subtract(*jnp.split(jnp.concatenate([features, 2 * features]) @ w, 2)))
        ), "mean",
    ),
    "two batches side by side": (
        lambda w, features: jnp.mean(jnp.prod(jnp.stack([features @ w, 2 * features @ w]), 0)), "mean",
    ),
    "a table": (lambda table, action: jax.grad(lambda table: jnp.mean(table[action] ** 2))(table), "mean"),
    "a histogram": (lambda action: jnp.bincount(action, length=ACTIONS), "sum"),
    "a sum of segments": (lambda x, action: jax.ops.segment_sum(x, action, ACTIONS), "sum"),
    "a largest of segments": (lambda x, action: jax.ops.segment_max(x, action, ACTIONS), "max"),
    "what each row chose": (
        lambda features, action: jnp.mean(jnp.take_along_axis(features, action[:, None] % 4, -1)), "mean",
    ),
    "what each row chose, by number": (
        lambda w, features, action: jax.grad(
            lambda w: jnp.mean((features @ w)[jnp.arange(features.shape[0]), action])
        )(w), "mean",
    ),
    "a choice by what is known to all": (
        lambda w, x, flag: jax.lax.cond(flag, lambda: jnp.mean(x), lambda: 0.0), "mean",
    ),
    "each row by itself": (lambda features: jnp.mean(jax.lax.map(lambda row: jnp.sin(row).sum(), features)), "mean"),
    "a distribution": (lambda features: jnp.mean(nn.softmax(features), 0), "mean"),
    "a largest, scaled": (lambda x: 3 * jnp.exp(jnp.max(x)) + 1, "max"),
    "a largest, turned": (lambda x: 1 - jnp.max(x), "min"),
    "whether one is large": (lambda x: jnp.max(x) > 1, "any"),
    "whether none is": (lambda x: ~jnp.any(x > 1), "all"),
    "a matrix of second moments": (lambda features: features.T @ features / features.shape[0], "mean"),
    "a gradient through choices row by row": (
        lambda w, rollout: jax.grad(
            lambda w: jnp.mean(
                jax.lax.map(lambda step: where_any(step[:, 0] > 1, lambda: jnp.tanh(step @ w), 0 * (step @ w)), rollout)
            )
        )(w), "mean",
    ),
    "a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, total: total + i * jnp.sum(x), 0.0), "sum"),
    "sorted features": (lambda features: jnp.mean(jnp.sort(features, -1)[:, 0]), "mean"),
    "a gradient with respect to rows": (
        lambda x: jnp.mean(jax.vmap(jax.grad(lambda x: jnp.sin(x)))(x)), "mean",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COMBINED)
def test_pieces_combine_as_the_analysis_says(case: str) -> None:
    function, how = COMBINED[case]
    found = shares(function)
    assert [share.combine for share in found] == [how]
    assert all(share.exact for share in found)
    (whole,) = run(function, 1)
    for parts in (2, 3):
        np.testing.assert_allclose(combined(found, parts, function)[0], whole[0], rtol=1e-5, atol=1e-6)


MIXED: dict[str, Callable[..., Any]] = {
    "a masked mean": lambda x, mask: jnp.sum(mask * x) / jnp.sum(mask),
    "jax's masked mean": lambda x, mask: jnp.mean(x, where=mask),
    "a masked mean that is never empty": lambda x, mask: jnp.sum(mask * x) / jnp.maximum(jnp.sum(mask), 1),
    "a deviation": lambda x: jnp.std(x),
    "an unbiased variance": lambda x: jnp.var(x, ddof=1),
    "a sum over one less": lambda x: jnp.sum(x) / (x.shape[0] - 1),
    "a median": lambda x: jnp.median(x),
    "a clipped gradient": lambda w, features: optax.clip_by_global_norm(0.1).update(
        jax.grad(lambda w: jnp.mean(features @ w))(w), optax.EmptyState()
    )[0],
    "a gradient's norm": lambda w, features: optax.tree.norm(jax.grad(lambda w: jnp.mean(features @ w))(w)),
    "a product of means": lambda x, mask: jnp.mean(x) * jnp.mean(mask),
    "the logarithm of a mean": lambda x: jnp.log(jnp.mean(jnp.exp(x))),
    "a log-sum-exp": lambda x: nn.logsumexp(x),
    "the first row": lambda x: x[0],
    "half of the rows": lambda x: jnp.mean(x[: x.shape[0] // 2]),
    "every second row": lambda x: jnp.mean(x[::2]),
    "all pairs": lambda features: jnp.mean(nn.logsumexp(features @ features.T, -1)),
    "all differences": lambda x: jnp.mean(jnp.abs(x[:, None] - x[None, :])),
    "the best row": lambda x: jnp.argmax(x).astype(float),
    "a running sum": lambda x: jnp.mean(jnp.cumsum(x)),
    "a solution": lambda features: jnp.linalg.solve(features.T @ features, jnp.ones(FEATURES)),
    "a choice by a mean": lambda x: jnp.where(jnp.mean(x) > 0, 1.0, 0.0),
    "a branch by a mean": lambda x: jax.lax.cond(jnp.sum(x) > 0, lambda: jnp.max(x), lambda: jnp.min(x)),
    "a mean and a sum": lambda x: jnp.mean(x) + jnp.sum(x),
    "a sum and a number": lambda x: jnp.sum(x) + 1,
    "rows weighed by their mean": lambda x: jnp.mean(x * jnp.mean(x)),
    "rows over their largest": lambda x: jnp.mean(x / jnp.max(x)),
    "rows weighed by their number": lambda x: jnp.mean(x * jnp.arange(x.shape[0])),
    "rows weighed by a share of their number": lambda x: jnp.mean(x * (jnp.arange(x.shape[0]) + 1) / x.shape[0]),
    "rows in a line": lambda x: jnp.mean(x * jnp.linspace(0, 1, x.shape[0])),
    "rows by their neighbours": lambda x: jnp.mean(jnp.square(jnp.roll(x, 1) - x)),
    "a choice by row of a mean": lambda x: jnp.sum(jnp.where(x > 0, jnp.mean(x), 0)),
    "a product of rows": lambda x: jnp.prod(x),
    "a total that goes from row to row": lambda x: jax.lax.scan(
        lambda total, row: (jnp.cos(total) + row, None), jnp.zeros((), x.dtype), x
    )[0],
    "each row by its distance from the mean": lambda x: jnp.mean(
        jax.lax.map(lambda row: jnp.abs(row - jnp.mean(x)), x)
    ),
    "each row by all others": lambda x: jnp.mean(jax.lax.map(lambda row: jnp.max(jnp.abs(row - x)), x)),
    "a network of gradients": lambda w, features: jnp.mean(
        features @ jax.grad(lambda w: jnp.mean(jnp.square(features @ w)))(w)
    ),
    "a table of gradients": lambda table, action: jnp.mean(
        jax.grad(lambda table: jnp.mean(table[action] ** 2))(table)[action]
    ),
    "a mean of a mean's distance": lambda x: jnp.mean(jnp.abs(x - jnp.mean(x))),
    "a rounded mean": lambda x: jnp.floor(10 * jnp.mean(x)),
    "a mean beside a largest": lambda x: jnp.stack([jnp.mean(x), jnp.max(x)]),
    "an entropy of a mean": lambda features: (
        -jnp.sum(jnp.mean(nn.softmax(features), 0) * jnp.log(jnp.mean(nn.softmax(features), 0)))
    ),
    "two orders of rows": lambda x, rollout: jnp.mean(jnp.concatenate([x, x, x]) * rollout[..., 0].T.reshape(-1)),
}


@pytest.mark.parametrize("case", MIXED)
def test_what_no_combination_gives_is_seen_and_really_differs(case: str) -> None:
    function = MIXED[case]
    (share,) = shares(function)
    assert share.kind == "mixed" and share.why and not share.exact
    (whole,) = run(function, 1)
    averages = [np.mean([piece[0] for piece in run(function, parts)], 0) for parts in (2, 4)]
    assert not all(np.allclose(average, whole[0], rtol=1e-4) for average in averages)


ROW_WISE: dict[str, Callable[..., Any]] = {
    "a network": lambda w, features: jnp.tanh(features @ w),
    "a choice": lambda x, mask: jnp.where(mask, x, 0),
    "a reshape": lambda features: features.reshape(-1, 2, 2),
    "a return": lambda rollout: jnp.flip(jnp.cumsum(jnp.flip(rollout, 0), 0), 0),
    "an argmax": lambda features: jnp.argmax(features, -1),
    "there and back": lambda rollout: jnp.tanh(rollout.reshape(-1, FEATURES)).reshape(rollout.shape),
    "keys": lambda action: jax.random.key_data(
        jax.vmap(lambda row: jax.random.fold_in(jax.random.key(0), row))(action)
    ),
    "noise of keys": lambda action: jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(jax.random.key(0), row)))(
        action
    ),
    "what each row chose": lambda features, action: features[jnp.arange(features.shape[0]), action % 4],
    "what each row chose, by a constant": lambda features, action: features[np.arange(features.shape[0]), action % 4],
    "a change of what each row chose": lambda features, action: features.at[
        jnp.arange(features.shape[0]), action % 4
    ].add(1.0),
    "one of each": lambda action: nn.one_hot(action, ACTIONS),
    "a choice row by row that skips": lambda features, mask: where_any(mask, lambda: jnp.sin(features), features),
    "such choices in a loop": lambda rollout: jax.lax.map(
        lambda step: where_any(step[:, 0] > 1, lambda: jnp.cos(step), step), rollout
    ),
    "a choice within a choice": lambda features, mask: where_any(
        mask, lambda: where_any(features[:, 0] > 1, lambda: jnp.sin(features), features), -features
    ),
    "a padded row": lambda features: jnp.pad(features, ((0, 0), (1, 0))),
}


@pytest.mark.parametrize("case", ROW_WISE)
def test_rows_remain_rows(case: str) -> None:
    function = ROW_WISE[case]
    (share,) = shares(function)
    assert (share.kind, share.degree) == ("rows", 0)
    ((whole,),), pieces = run(function, 1), run(function, 2)
    axis = 1 if "rollout" in inspect.signature(function).parameters else 0
    np.testing.assert_allclose(np.concatenate([piece[0] for piece in pieces], axis), whole, rtol=1e-5)


NOT_ROWS: dict[str, Callable[..., Any]] = {
    "a normalised batch": lambda x: (x - jnp.mean(x)) / jnp.std(x),
    "a softmax over rows": lambda x: nn.softmax(x),
    "sorted rows": lambda x: jnp.sort(x),
    "shares of rows": lambda x: x / x.shape[0],
    "rows in reverse": lambda x: x[::-1],
    "row numbers": lambda x: jnp.arange(x.shape[0]),
    "a memory that goes from row to row": lambda x: jax.lax.scan(
        lambda total, row: (total + row, jnp.cos(total)), jnp.zeros((), x.dtype), x
    )[1],
    "a branch by any row": lambda x: jax.lax.cond(jnp.any(x > 1), lambda: jnp.sin(x), lambda: x),
    "a branch by the largest row": lambda x: jax.lax.cond(jnp.max(x) > 1, lambda: jnp.sin(x), lambda: x),
    "a choice by any row": lambda x: jnp.where(jnp.any(x > 1), jnp.sin(x), x),
    "rounds for as long as any row wants them": lambda x: jax.lax.while_loop(
        lambda x: jnp.any(x > 0.1), lambda x: 0.5 * x, x
    ),
    "a branch by any row, within a choice row by row": lambda x: where_any(
        x > 0, lambda: jax.lax.cond(jnp.any(x > 1), lambda: jnp.sin(x), lambda: x), x
    ),
    "rows less their mean, one by one": lambda x: jax.lax.map(lambda row: row - jnp.mean(x), x),
}


@pytest.mark.parametrize("case", NOT_ROWS)
def test_rows_that_depend_on_their_piece_are_no_rows(case: str) -> None:
    (share,) = shares(NOT_ROWS[case])
    assert (share.kind, share.degree) != ("rows", 0) and share.kind not in ("same", "unknown")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.mean(x.reshape(4, -1)),  # a piece's rows are no slice of it
        lambda x: jax.pure_callback(lambda x: np.float32(0), jax.ShapeDtypeStruct((), np.float32), x),
        lambda x: jnp.mean(x) if x.shape[0] == N else jnp.sum(x),  # two programs
        lambda x: jnp.mean(jax.random.normal(jax.random.key(0), x.shape)),
        lambda x: jnp.mean(x[2 * (jnp.arange(x.shape[0]) // 2)]),  # of every second row twice
    ],
)
def test_what_cannot_be_told_is_said_to_be_unknown(function: Callable[..., Any]) -> None:
    (share,) = shares(function)
    assert share.kind == "unknown" and not share.exact


@pytest.mark.parametrize("rows", [(N, 2 * N), (N, N // 2), (N, N // 3), (N, 7 * N)])
def test_it_does_not_matter_which_two_sizes_are_compared(rows: tuple[int, int]) -> None:
    for function, how in COMBINED.values():
        assert [share.combine for share in shares(function, rows)] == [how]
    for function in MIXED.values():
        assert [share.kind for share in shares(function, rows)] == ["mixed"]


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_a_reshape_are_where_the_pieces_are(seed: int) -> None:
    """A piece of a reshaped array is the reshaped piece, if the analysis gives it blocks."""
    chance = np.random.default_rng(seed)
    outer, rows, inner = (int(each) for each in chance.integers(1, 4, 3) * [2, 4, 2])
    shape = (outer, rows, inner)
    whole = np.arange(np.prod(shape)).reshape(shape)
    pieces = np.split(whole, 2, 1)
    for new in [(-1,), (outer, -1), (-1, inner), (outer * rows, inner), (outer, rows * inner), (2, outer // 2, -1)]:
        after = whole.reshape(new)
        for axis, size in enumerate(after.shape):
            halves = [size // 2 if place == axis else each for place, each in enumerate(after.shape)]
            blocks = relaid(shape, 1, 1, after.shape, axis)
            if size % 2 or blocks is None or (size // blocks) % 2:
                continue
            cut = after.reshape(*after.shape[:axis], blocks, 2, size // blocks // 2, *after.shape[axis + 1 :])
            for index, piece in enumerate(pieces):
                np.testing.assert_array_equal(piece.reshape(halves), np.take(cut, index, axis + 1).reshape(halves))
