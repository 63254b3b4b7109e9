"""Networks, in flax. An algorithm sees two pure functions of one observation: init and apply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms.observations import View
from motet.flow.spaces import Space

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"tanh": nn.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Dense layers with an activation between them."""

    hidden: Sequence[int]
    outputs: int
    activation: str = "tanh"
    scale: float = 1.0
    """Gain of the last layer's orthogonal initialisation."""
    random_biases: bool = False
    """Start with biases other than 0. A ReLU network without biases scales with its input, so where states grow along
    an episode, so do the values that Q-learning takes for granted: it diverges."""

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        float_type = jnp.result_type(float)
        for width in self.hidden:
            bound = features.shape[-1] ** -0.5 if self.random_biases else 0.0
            layer = nn.Dense(
                width,
                kernel_init=nn.initializers.orthogonal(np.sqrt(2)),
                bias_init=partial(_uniform, bound) if bound else nn.initializers.zeros,
                param_dtype=float_type,
            )
            features = ACTIVATIONS[self.activation](layer(features))
        last = nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.scale), param_dtype=float_type)
        return last(features)


def _uniform(bound: float, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jax.random.uniform(key, shape, dtype, -bound, bound)


@dataclass(frozen=True)
class Network:
    """A module with its way of reading observations."""

    module: nn.Module
    space: Space

    def init(self, key: jax.Array) -> Any:
        return self.module.init(key, self.features(View(self.space).blank))

    def __call__(self, params: Any, observation: Any) -> jax.Array:
        """[..., *observation] -> [..., outputs]"""
        out = self.module.apply(params, self.features(observation))
        assert isinstance(out, jax.Array)
        return out

    def features(self, observation: Any) -> jax.Array:
        """Observations as flat vectors of floats."""
        return View(self.space).numbers(observation)
