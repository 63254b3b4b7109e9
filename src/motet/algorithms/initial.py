"""The values that weights begin with."""

from __future__ import annotations

from typing import Any

import flax.linen as nn


def orthogonal(module: nn.Module, scale: float) -> Any:
    """An orthogonal matrix of this gain, for a layer of `module`.

    Whenever a layer is applied, flax traces how it would begin, to compare shapes. Of an orthogonal matrix that takes
    as long as to trace all that the layer computes: so, but for the first time, zeros of the same shape stand for it.
    """
    return nn.initializers.orthogonal(scale) if module.is_initializing() else nn.initializers.zeros
