"""x to the power of alpha, with the same bits from NumPy and from XLA.

Libraries differ in the last digit of `pow`, and a sum tree would pass that on to what is drawn. So the power is
spelled out in operations that IEEE 754 rounds alike everywhere. Compilers may fuse a product with the sum that
follows it, which rounds once instead of twice; the minimum in between keeps them apart. Good to about 1e-6.
"""

from __future__ import annotations

from math import factorial, log
from typing import Any

import numpy as np

LARGEST = np.float32(1e30)
"""Larger results are cut to this, so that no sum of them overflows."""
SMALLEST = np.float32(2.0**-126)
"""What is smaller counts as 0: some devices flush it to that, others do not."""

_LOG = [np.float32(2 / log(2) / k) for k in (9, 7, 5, 3, 1)]
_EXP = [np.float32(log(2) ** k / factorial(k)) for k in range(7, -1, -1)]


def power(xp: Any, base: Any, alpha: float) -> Any:
    """base ** alpha of float32 numbers that are 0 or more; `xp` is numpy or jax.numpy. 0 stays 0."""
    base = xp.minimum(base, LARGEST)
    result = base if alpha == 1 else xp.minimum(_exp2(xp, _times(xp, _log2(xp, base), np.float32(alpha))), LARGEST)
    return xp.where(base < SMALLEST, np.float32(0), result)


def _times(xp: Any, a: Any, b: Any) -> Any:
    return xp.minimum(a * b, np.float32(3e38))


def _polynomial(xp: Any, coefficients: list[np.float32], x: Any) -> Any:
    total = coefficients[0]
    for each in coefficients[1:]:
        total = _times(xp, total, x) + each
    return total


def _log2(xp: Any, x: Any) -> Any:
    """The exponent, and of the mantissa in [1/sqrt 2, sqrt 2) the series of the logarithm."""
    bits = x.view(np.int32)
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    large = mantissa > np.float32(2**0.5)
    mantissa = xp.where(large, mantissa * np.float32(0.5), mantissa)
    exponent = ((bits >> 23) - 127 + large.astype(np.int32)).astype(np.float32)
    s = (mantissa - np.float32(1)) / (mantissa + np.float32(1))
    return exponent + _times(xp, s, _polynomial(xp, _LOG, _times(xp, s, s)))


def _exp2(xp: Any, x: Any) -> Any:
    x = xp.clip(x, np.float32(-126), np.float32(126))
    whole = xp.round(x)
    scale = ((whole.astype(np.int32) + 127) << 23).view(np.float32)
    return scale * _polynomial(xp, _EXP, x - whole)
