"""Streaming statistics, and observations and rewards brought to scale by them.

The statistics are part of the learner state and change once an iteration, from moments of the whole rollout. They
travel with the parameters, so whoever acts or learns in an iteration reads the same ones; a saved policy has them,
and evaluation leaves them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.batch import batch_moments
from motet.flow.spaces import Box, Space

SMALLEST_VARIANCE = 1e-6
"""Added to variances, lest the rounding of a value that never changes is blown up to something."""
REWARD_CLIP = 10.0
WIDE = 10.0
"""A bound of observations beyond which they are brought to scale if nobody says whether to."""


def is_wide(space: Space) -> bool:
    """Whether it holds real numbers that all have a bound, some of them beyond `WIDE`."""
    if not isinstance(space, Box) or space.aval.dtype.kind != "f":
        return False
    bounds = np.abs(np.concatenate([each.ravel() for each in space.bounds]))
    return bool(bounds.size and np.isfinite(bounds).all() and bounds.max() > WIDE)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """What is known of a stream of values."""

    count: jax.Array  # [] values seen
    mean: jax.Array  # [...] of one value's shape, as `m2`
    m2: jax.Array
    """The sum of squared distances from the mean."""

    @property
    def deviation(self) -> jax.Array:
        """[...] The standard deviation, or 1 before anything was seen."""
        variance = self.m2 / jnp.maximum(self.count, 1)
        return jnp.where(self.count > 0, jnp.sqrt(variance + SMALLEST_VARIANCE), 1)

    @property
    def size(self) -> jax.Array:
        """[...] The root of the mean square, or 1 before anything was seen."""
        square = self.m2 / jnp.maximum(self.count, 1) + jnp.square(self.mean)
        return jnp.where(self.count > 0, jnp.sqrt(square + SMALLEST_VARIANCE), 1)


def nothing_seen(aval: jax.ShapeDtypeStruct) -> Moments:
    zeros = jnp.zeros(aval.shape, aval.dtype)
    return Moments(jnp.zeros((), aval.dtype), zeros, zeros)


def measure(values: jax.Array, count: int) -> Moments:
    """The moments of a whole batch [T, B, ...] of `count` values, of which `values` may be a piece."""
    mean, variance = batch_moments(values, axis=(0, 1))
    return Moments(jnp.asarray(count, mean.dtype), mean, variance * count)


def merge(one: Moments, other: Moments) -> Moments:
    """The moments of both streams together (Chan et al. 1983)."""
    count = one.count + other.count
    share = other.count / jnp.maximum(count, 1)
    distance = other.mean - one.mean
    m2 = one.m2 + other.m2 + jnp.square(distance) * (one.count * share)
    return Moments(count, one.mean + distance * share, m2)


def normalise(moments: Moments, values: jax.Array, clip: float) -> jax.Array:
    """Shift and scale values [..., *shape] to mean 0 and variance 1, at most `clip` from 0."""
    mean, deviation = (jnp.broadcast_to(each, values.shape) for each in (moments.mean, moments.deviation))
    return jnp.clip((values - mean) / deviation, -clip, clip)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Statistics:
    """What is known of observations and rewards; None of what is taken as it comes."""

    observation: Any
    """A tree like an observation: moments for each part in floats and for each picture, None for the others."""
    reward: Moments | None

    @staticmethod
    def start(observation: Any, *, observations: bool, rewards: bool) -> Statistics:
        """Nothing seen, of environments whose observations have the types of `observation`."""

        def one(aval: jax.ShapeDtypeStruct) -> Moments | None:
            if jnp.issubdtype(aval.dtype, jnp.floating):
                return nothing_seen(aval)
            picture = aval.dtype == jnp.uint8 and len(aval.shape) > 1
            return nothing_seen(jax.ShapeDtypeStruct(aval.shape, jnp.result_type(float))) if picture else None

        scalar = jax.ShapeDtypeStruct((), jnp.result_type(float))
        seen = jax.tree.map(one, observation) if observations else None
        return Statistics(seen, nothing_seen(scalar) if rewards else None)

    def observe(self, observation: Any, clip: float) -> Any:
        """Observations [..., *shape] as networks see them."""
        if self.observation is None:
            return observation

        def one(values: jax.Array, moments: Moments | None) -> jax.Array:
            return values if moments is None else normalise(moments, values, clip)

        return jax.tree.map(one, observation, self.observation)

    def scale(self, reward: jax.Array) -> jax.Array:
        """Rewards in units of their size. They are not shifted: their sign has a meaning. So it is not their deviation
        either, which is 0 where a task gives 1 for every step."""
        if self.reward is None:
            return reward
        return jnp.clip(reward / self.reward.size, -REWARD_CLIP, REWARD_CLIP)

    def measure(self, observation: Any, reward: jax.Array, count: int) -> Statistics:
        """The same of one batch [T, B, ...] of `count` steps alone."""

        def one(values: jax.Array, moments: Moments | None) -> Moments | None:
            return None if moments is None else measure(values.astype(moments.mean.dtype), count)

        seen = None if self.observation is None else jax.tree.map(one, observation, self.observation)
        return Statistics(seen, None if self.reward is None else measure(reward, count))

    def merge(self, other: Statistics) -> Statistics:
        """What is known when both are."""
        return jax.tree.map(merge, self, other, is_leaf=lambda part: isinstance(part, Moments))


PLAIN = Statistics(None, None)
"""Everything is taken as it comes."""
