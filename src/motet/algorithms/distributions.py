"""Distributions over actions, written for one action; the caller maps them.

By hand because distrax needs a nightly build of TensorFlow Probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Categorical:
    """Over 0 to n - 1. `logits` may be unnormalised."""

    logits: jax.Array  # [..., n]

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> jax.Array:
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    def log_prob(self, action: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]

    def entropy(self) -> jax.Array:
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, -1)

    def kl(self, other: Categorical) -> jax.Array:
        """KL(self || other)."""
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalNormal:
    """Independent normals over the last axis."""

    mean: jax.Array  # [..., n]
    log_std: jax.Array  # [..., n] or [n]

    def sample(self, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> jax.Array:
        return self.mean

    def log_prob(self, action: jax.Array) -> jax.Array:
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * jnp.square(scaled) - self.log_std - 0.5 * jnp.log(2 * jnp.pi), -1)

    def entropy(self) -> jax.Array:
        each = self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)
        return jnp.sum(jnp.broadcast_to(each, self.mean.shape), -1)

    def kl(self, other: DiagonalNormal) -> jax.Array:
        """KL(self || other)."""
        log_scale = self.log_std - other.log_std
        distance = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return jnp.sum(0.5 * (jnp.exp(2 * log_scale) + jnp.square(distance) - 1) - log_scale, -1)


Distribution = Categorical | DiagonalNormal
