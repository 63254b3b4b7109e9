"""Distributions over actions, written for one action; the caller maps them.

By hand because distrax needs a nightly build of TensorFlow Probability. Each gives actions of the exact type and shape
of its space, and all are independent over the axes of one action.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np


@runtime_checkable
class Distribution(Protocol):
    """What all of them offer. `[...]` are leading axes; an action may be a pytree."""

    def sample(self, key: jax.Array) -> Any:
        """[..., *action]"""
        ...

    def mode(self) -> Any:
        """The likeliest action [..., *action]; of continuous ones, the one of highest density."""
        ...

    def log_prob(self, action: Any) -> jax.Array:
        """[..., *action] -> [...]"""
        ...

    def entropy(self) -> jax.Array:
        """[...]"""
        ...

    def kl(self, other: Any) -> jax.Array:
        """KL(self || other), of two distributions of one kind -> [...]"""
        ...


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
        log_p, log_q = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return jnp.sum(jnp.exp(log_p) * (log_p - log_q), -1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Categoricals:
    """Several categorical numbers side by side, of one width; what a narrower one cannot be has logits of `NEVER`."""

    logits: jax.Array  # [..., k, n]

    @staticmethod
    def of(logits: jax.Array, nvec: tuple[int, ...]) -> Categoricals:
        """From logits side by side [..., sum(nvec)]."""
        count, widest = len(nvec), max(nvec)
        if min(nvec) == widest:
            return Categoricals(logits.reshape(*logits.shape[:-1], count, widest))
        # One gather for all of them: a distribution for each would be a program as long as the vector.
        first = np.cumsum(nvec) - nvec
        inside = np.arange(widest) < np.asarray(nvec)[:, None]
        source = np.where(inside, first[:, None] + np.arange(widest), 0)
        spread = logits[..., source]
        return Categoricals(jnp.where(np.broadcast_to(inside, spread.shape), spread, NEVER))

    def sample(self, key: jax.Array) -> jax.Array:
        return Categorical(self.logits).sample(key)

    def mode(self) -> jax.Array:
        return Categorical(self.logits).mode()

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jnp.sum(Categorical(self.logits).log_prob(action), -1)

    def entropy(self) -> jax.Array:
        return jnp.sum(Categorical(self.logits).entropy(), -1)

    def kl(self, other: Categoricals) -> jax.Array:
        return jnp.sum(Categorical(self.logits).kl(Categorical(other.logits)), -1)


NEVER = -1e9
"""A logit whose probability is exactly 0, but which is finite: 0 times it is 0."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Bernoullis:
    """Independent zeros and ones; `logits` are those of the ones."""

    logits: jax.Array  # [..., *shape]
    axes: int = field(default=1, metadata={"static": True})
    """How many trailing axes belong to one action."""

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, jax.nn.sigmoid(self.logits)).astype(jnp.int8)

    def mode(self) -> jax.Array:
        return (self.logits > 0).astype(jnp.int8)

    def log_prob(self, action: jax.Array) -> jax.Array:
        return self._sum(jnp.where(action == 1, *self._log_p))

    def entropy(self) -> jax.Array:
        one, zero = self._log_p
        return -self._sum(jnp.exp(one) * one + jnp.exp(zero) * zero)

    def kl(self, other: Bernoullis) -> jax.Array:
        (one, zero), (other_one, other_zero) = self._log_p, other._log_p
        return self._sum(jnp.exp(one) * (one - other_one) + jnp.exp(zero) * (zero - other_zero))

    @property
    def _log_p(self) -> tuple[jax.Array, jax.Array]:
        """Of ones and of zeros."""
        return jax.nn.log_sigmoid(self.logits), jax.nn.log_sigmoid(-self.logits)

    def _sum(self, each: jax.Array) -> jax.Array:
        return jnp.sum(each, tuple(range(-self.axes, 0)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiagonalNormal:
    """Independent normals over the trailing axes."""

    mean: jax.Array  # [..., *shape]
    log_std: jax.Array  # [..., *shape] or [*shape]
    axes: int = field(default=1, metadata={"static": True})
    """How many trailing axes belong to one action."""
    dtype: str | None = field(default=None, metadata={"static": True})
    """The type of an action; None: that of the mean."""

    def sample(self, key: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self._action(self.mean + self._like_mean(jnp.exp(self.log_std)) * noise)

    def mode(self) -> jax.Array:
        return self._action(self.mean)

    def log_prob(self, action: jax.Array) -> jax.Array:
        scaled = (action.astype(self.mean.dtype) - self.mean) * self._like_mean(jnp.exp(-self.log_std))
        return self._sum(-0.5 * jnp.square(scaled) - self._like_mean(self.log_std) - 0.5 * jnp.log(2 * jnp.pi))

    def entropy(self) -> jax.Array:
        return self._sum(self._like_mean(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)))

    def kl(self, other: DiagonalNormal) -> jax.Array:
        log_ratio = self._like_mean(self.log_std - other.log_std)
        distance = (self.mean - other.mean) * self._like_mean(jnp.exp(-other.log_std))
        return self._sum(0.5 * (jnp.exp(2 * log_ratio) + jnp.square(distance) - 1) - log_ratio)

    def _action(self, value: jax.Array) -> jax.Array:
        return value if self.dtype is None else value.astype(self.dtype)

    def _like_mean(self, value: jax.Array) -> jax.Array:
        return jnp.broadcast_to(value, self.mean.shape)

    def _sum(self, each: jax.Array) -> jax.Array:
        return jnp.sum(each, tuple(range(-self.axes, 0)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factored:
    """Independent parts, in a dictionary or a tuple as their actions are."""

    parts: Any

    def sample(self, key: jax.Array) -> Any:
        parts, treedef = jax.tree.flatten(self.parts, is_leaf=_is_part)
        keys = jax.random.split(key, len(parts))
        return jax.tree.unflatten(treedef, [part.sample(each) for part, each in zip(parts, keys, strict=True)])

    def mode(self) -> Any:
        return self._map(lambda part: part.mode())

    def log_prob(self, action: Any) -> jax.Array:
        return self._sum(self._map(lambda part, its: part.log_prob(its), action))

    def entropy(self) -> jax.Array:
        return self._sum(self._map(lambda part: part.entropy()))

    def kl(self, other: Factored) -> jax.Array:
        return self._sum(self._map(lambda part, its: part.kl(its), other.parts))

    def _map(self, method: Any, *trees: Any) -> Any:
        return jax.tree.map(method, self.parts, *trees, is_leaf=_is_part)

    def _sum(self, each: Any) -> jax.Array:
        return reduce(add, jax.tree.leaves(each))


def _is_part(thing: Any) -> bool:
    return isinstance(thing, Distribution)
