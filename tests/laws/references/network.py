"""Dense layers, as all of motet's algorithms begin with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


class Layers(nn.Module):
    """Dense layers with an activation between them."""

    hidden: tuple[int, ...]
    outputs: int
    activation: Callable[[Any], Any]
    scale: float = 1.0
    biased: bool = True
    """Whether the first biases of the hidden layers are random, not 0."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dtype = jnp.result_type(float)
        for width in self.hidden:
            bound = x.shape[-1] ** -0.5

            def even(key: Any, shape: Any, dtype: Any, bound: float = bound) -> jax.Array:
                return jax.random.uniform(key, shape, dtype, -bound, bound)

            bias = even if self.biased else nn.initializers.zeros
            kernel = nn.initializers.orthogonal(np.sqrt(2))
            x = self.activation(nn.Dense(width, kernel_init=kernel, bias_init=bias, param_dtype=dtype)(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.scale), param_dtype=dtype)(x)
