"""Networks of a few numbers, without a library: these algorithms know nothing of motet's own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

Layers = list[tuple[jax.Array, jax.Array]]


def dense(key: jax.Array, *sizes: int) -> Layers:
    """Random weights of fully connected layers."""
    keys = jax.random.split(key, len(sizes))
    return [
        (jax.random.normal(keys[place], (a, b)) / jnp.sqrt(a), jnp.zeros(b))
        for place, (a, b) in enumerate(pairwise(sizes))
    ]


def run(layers: Layers, features: jax.Array) -> jax.Array:
    """tanh between the layers."""
    for place, (weight, bias) in enumerate(layers):
        features = jnp.einsum("...i,ij->...j", jnp.tanh(features) if place else features, weight)
        features = features + bias.reshape((1,) * (features.ndim - 1) + bias.shape)
    return features


def pick(values: jax.Array, action: jax.Array) -> jax.Array:
    """[..., A], [...] -> the entry of each action."""
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


def descend(params: Any, gradients: Any, rate: float) -> Any:
    return jax.tree.map(lambda param, gradient: param - rate * gradient, params, gradients)
