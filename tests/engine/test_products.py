"""Products with a transposed matrix are computed in another order where Eigen computes them, and give the same."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.engine.cpu.options import by_eigen, cpu_options
from motet.engine.cpu.products import FEWEST, is_slow, with_transposed
from motet.engine.cpu.rules import lowering
from motet.engine.cpu.switch import enabled

quick = pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")


def some(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape))


@quick
@pytest.mark.parametrize("kind", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("shapes", [((64, 256), (256, 256)), ((8, 64), (128, 64)), ((64, 64), (64, 64))])
def test_turned_products_are_the_same_but_for_rounding(shapes: Any, kind: Any) -> None:
    rows, matrix = (some(*shape).astype(kind) for shape in shapes)
    traced = jax.jit(with_transposed).trace(rows, matrix)
    turned = traced.lower(**lowering(eigen=True))
    assert "optimization_barrier" in turned.as_text()
    want = rows.astype(float) @ matrix.astype(float).T
    got = turned.compile()(rows, matrix)
    assert got.dtype == rows.dtype and got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got, float), want, rtol=0, atol=2e-4 if kind != jnp.bfloat16 else 0.5)


@quick
def test_gradients_of_a_network_are_turned_and_right() -> None:
    weights, x = [some(64, 64) / 8, some(64, 64) / 8, some(64, 1) / 8], some(32, 64)

    def loss(weights: Any) -> jax.Array:
        return jnp.mean((jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) @ weights[2]) ** 2)

    traced = jax.jit(jax.grad(loss)).trace(weights)
    ours, theirs = traced.lower(**lowering(eigen=True)), traced.lower()
    assert "optimization_barrier" in ours.as_text() and "optimization_barrier" not in theirs.as_text()
    for one, other in zip(ours.compile()(weights), theirs.compile()(weights), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_only_large_products_of_few_rows_are_turned() -> None:
    last = (((1,), (1,)), ((), ()))
    assert is_slow((64, 256), (256, 256), last)
    assert not is_slow((64, 256), (256, 256), (((1,), (0,)), ((), ())))
    assert not is_slow((1, 256), (256, 256), last)
    assert not is_slow((512, 256), (256, 256), last)  # more rows than the matrix has
    assert not is_slow((3, 64, 256), (256, 256), (((2,), (1,)), ((), ())))
    assert not is_slow((4, 8), (8, FEWEST // 64), last)


@quick
@pytest.mark.parametrize(("rows", "eigen"), [(64, True), (4096, False)])
def test_products_are_turned_where_eigen_multiplies(rows: int, eigen: bool) -> None:
    program = jax.make_jaxpr(lambda x: x @ jnp.zeros((64, 64)))(jnp.zeros((rows, 64)))
    assert by_eigen(cpu_options(program.jaxpr, alone=True)) == eigen
