"""A convolution is the same on every device, however it is computed there."""

from __future__ import annotations

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.algorithms.convolution import Convolution, as_convolution, as_product


@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(8, 4, "VALID"), (4, 2, "VALID"), (3, 1, "VALID"), (3, 1, "SAME"), (3, 2, "SAME"), (3, 2, "VALID")],
)
def test_values_and_gradients_are_those_of_flax(size: int, stride: int, padding: Literal["SAME", "VALID"]) -> None:
    image = jax.random.normal(jax.random.key(0), (2, 3, 21, 18, 4))
    ours = Convolution(5, size, stride, padding)
    theirs = nn.Conv(5, (size, size), stride, padding=padding)
    params = jax.jit(ours.init)(jax.random.key(1), image)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(
        jnp.shape, jax.eval_shape(theirs.init, jax.random.key(1), image)
    )

    def loss(module: nn.Module, params: object, image: jax.Array) -> jax.Array:
        out = module.apply(params, image)  # type: ignore[arg-type]
        assert isinstance(out, jax.Array)
        return jnp.sum(jnp.sin(out))

    compare = jax.jit(jax.value_and_grad(loss, (1, 2)), static_argnums=0)
    ours_and_theirs = (jax.tree.leaves(compare(module, params, image)) for module in (ours, theirs))
    for one, other in zip(*ours_and_theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("size", "stride"), [(8, 4), (4, 2), (3, 1), (3, 2)])
def test_both_ways_agree(size: int, stride: int) -> None:
    batch = jax.random.normal(jax.random.key(0), (3, 20, 17, 2))
    kernel = jax.random.normal(jax.random.key(1), (size, size, 2, 6))
    np.testing.assert_allclose(
        *(jax.jit(way, static_argnums=2)(batch, kernel, stride) for way in (as_product, as_convolution)),
        rtol=1e-4,
        atol=1e-4,
    )
