"""Where JAX no longer has the names of `jax.extend.core`, what stands in their place does the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.extend.core as extended
import jax.numpy as jnp
import numpy as np
import pytest

from motet.flow import jaxprs


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module as it would be."""
    monkeypatch.setitem(sys.modules, "jax.extend.core", None)
    yield importlib.reload(jaxprs)
    monkeypatch.undo()
    importlib.reload(jaxprs)


def loop(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Programs inside of programs: a loop, a choice, a function with a derivative of its own."""
    total, rows = jax.lax.scan(lambda c, row: (c + jax.nn.relu(row) @ row, jnp.sin(c)), 0.0, x)
    return jax.lax.cond(total > 0, lambda: total, lambda: -total) + np.arange(3.0).sum(), jax.jit(jnp.cumsum)(rows)


def test_it_asks_jax_where_jax_has_them() -> None:
    assert jaxprs.jaxpr_as_fun is extended.jaxpr_as_fun and jaxprs.ClosedJaxpr is extended.ClosedJaxpr


def test_the_classes_are_those_of_jax(without: Any) -> None:
    assert (without.ClosedJaxpr, without.Jaxpr) == (extended.ClosedJaxpr, extended.Jaxpr)
    assert without.Literal is extended.Literal
    assert without.jaxpr_as_fun is not extended.jaxpr_as_fun


def test_a_program_computes_the_same(without: Any) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    closed = jax.make_jaxpr(jax.value_and_grad(lambda x: loop(x)[0]))(x)
    for function in (jax.jit, lambda each: each):
        ours, theirs = (function(make(closed))(x) for make in (without.jaxpr_as_fun, extended.jaxpr_as_fun))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_programs_inside_are_found(without: Any) -> None:
    equations = jax.make_jaxpr(loop)(jnp.ones((5, 3))).jaxpr.eqns
    found = [[id(each) for each in without.jaxprs_in_params(equation.params)] for equation in equations]
    assert found == [[id(each) for each in extended.jaxprs_in_params(equation.params)] for equation in equations]
    assert sum(map(len, found)) >= 4
