"""Divergences between distributions over actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.algorithms.distributions import Categorical, DiagonalNormal, Distribution


def two(kind: str, n: int = 3) -> tuple[Distribution, Distribution]:
    keys = jax.random.split(jax.random.key(0), 4)
    a, b, c, d = (jax.random.normal(key, (5, n)) for key in keys)
    return (Categorical(a), Categorical(b)) if kind == "categorical" else (DiagonalNormal(a, b), DiagonalNormal(c, d))


both = pytest.mark.parametrize("kind", ["categorical", "normal"])


@both
def test_kl_is_zero_to_itself_and_positive_to_others(kind: str) -> None:
    one, other = two(kind)
    np.testing.assert_allclose(one.kl(one), np.zeros(5), atol=1e-6)
    assert (one.kl(other) > 0).all() and (other.kl(one) > 0).all()


@both
def test_kl_is_the_mean_difference_of_log_probabilities(kind: str) -> None:
    one, other = two(kind)
    actions = jax.vmap(one.sample)(jax.random.split(jax.random.key(1), 200_000))
    difference = jax.vmap(lambda action: one.log_prob(action) - other.log_prob(action))(actions)
    error = 5 * difference.std(0) / np.sqrt(len(difference))
    assert (jnp.abs(difference.mean(0) - one.kl(other)) < error).all()


def test_kl_of_normals_adds_up_over_dimensions() -> None:
    one, other = two("normal")
    parts = [
        DiagonalNormal(one.mean[:, i : i + 1], one.log_std[:, i : i + 1]).kl(
            DiagonalNormal(other.mean[:, i : i + 1], other.log_std[:, i : i + 1])
        )
        for i in range(3)
    ]
    np.testing.assert_allclose(sum(parts), one.kl(other), rtol=1e-5)
