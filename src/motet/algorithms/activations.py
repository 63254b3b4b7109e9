"""The activations that hidden layers may have, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import flax.linen as nn
import jax

Activation = Literal["tanh", "relu", "leaky_relu", "elu", "gelu", "silu", "softplus"]
"""`silu` is also called swish."""
NAMES: tuple[str, ...] = get_args(Activation)
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {name: getattr(nn, name) for name in NAMES}
