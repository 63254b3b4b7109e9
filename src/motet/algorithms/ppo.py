"""Proximal policy optimisation (Schulman et al. 2017), with a clipped surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from motet.algorithms.distributions import Distribution
from motet.algorithms.proximal import Batch, Proximal
from motet.algorithms.returns import real
from motet.flow.algorithm import option


@dataclass(frozen=True, kw_only=True)
class PPO(Proximal):
    """Proximal policy optimisation, for discrete and continuous actions."""

    clip: float = option(0.2, above=0)
    """How far the new policy's probability ratio may go from 1."""
    value_clip: float | None = option(None, above=0)
    """How far the new value may go from the old one in its loss; None: any distance."""

    def policy_loss(
        self, policy: Any, distribution: Distribution, batch: Batch, advantage: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        log_ratio = distribution.log_prob(batch.action) - batch.behaviour
        ratio = jnp.exp(log_ratio)
        near = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        loss = -jnp.mean(jnp.minimum(ratio * advantage, near * advantage))
        return loss, {"kl": jnp.mean(real(ratio - 1 - log_ratio, batch.valid))}

    def value_error(self, value: jax.Array, batch: Batch) -> jax.Array:
        error = super().value_error(value, batch)
        if self.value_clip is None:
            return error
        near = batch.value + jnp.clip(value - batch.value, -self.value_clip, self.value_clip)
        return jnp.maximum(error, jnp.square(near - batch.target))
