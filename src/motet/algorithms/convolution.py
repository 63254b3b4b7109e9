"""Convolutions of images that are fast wherever they run.

Accelerators have convolutions of their own. The gradients of XLA's for the CPU take some ten times as long inside of a
loop as outside, and every training loop is one: there, a convolution is a product of two matrices.
"""

from __future__ import annotations

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

Padding = Literal["SAME", "VALID"]


class Convolution(nn.Module):
    """`flax.linen.Conv` of square windows: [..., H, W, C] -> [..., H', W', channels]."""

    channels: int
    size: int
    stride: int = 1
    padding: Padding = "SAME"
    kernel_init: Any = nn.initializers.lecun_normal()

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        dtype = jnp.result_type(float)
        kernel = self.param("kernel", self.kernel_init, (self.size, self.size, image.shape[-1], self.channels), dtype)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.channels,), dtype)
        batch = _padded(image.reshape(-1, *image.shape[-3:]), self.size, self.stride, self.padding)
        out = jax.lax.platform_dependent(
            batch,
            kernel,
            cpu=lambda batch, kernel: as_product(batch, kernel, self.stride),
            default=lambda batch, kernel: as_convolution(batch, kernel, self.stride),
        )
        return out.reshape(*image.shape[:-3], *out.shape[1:]) + bias.reshape((1,) * (image.ndim - 1) + (-1,))


def as_convolution(batch: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """[B, H, W, C], [K, K, C, D] -> [B, H', W', D], without padding."""
    return jax.lax.conv_general_dilated(
        batch, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def as_product(batch: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """The same as a product of two matrices: all windows, laid out in rows, and the kernel."""
    if stride > 1 and kernel.shape[0] % stride == 0:
        batch, kernel = _fold(batch, kernel, stride)
        stride = 1
    size, channels = kernel.shape[0], kernel.shape[-1]
    rows, columns = ((side - size) // stride + 1 for side in batch.shape[1:3])
    shifted = [
        batch[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    windows = jnp.concatenate(shifted, -1).reshape(-1, size * size * batch.shape[-1])
    return (windows @ kernel.reshape(-1, channels)).reshape(len(batch), rows, columns, channels)


def _fold(batch: jax.Array, kernel: jax.Array, stride: int) -> tuple[jax.Array, jax.Array]:
    """Squares of stride x stride pixels become channels of one pixel: fewer and larger pieces to copy."""
    size, _, depth, channels = kernel.shape
    rows, columns = ((side - size) // stride + size // stride for side in batch.shape[1:3])
    batch = batch[:, : rows * stride, : columns * stride].reshape(-1, rows, stride, columns, stride, depth)
    kernel = kernel.reshape(size // stride, stride, size // stride, stride, depth, channels)
    return (
        batch.transpose(0, 1, 3, 2, 4, 5).reshape(-1, rows, columns, stride * stride * depth),
        kernel.transpose(0, 2, 1, 3, 4, 5).reshape(size // stride, size // stride, -1, channels),
    )


def _padded(batch: jax.Array, size: int, stride: int, padding: Padding) -> jax.Array:
    pads = jax.lax.padtype_to_pads(batch.shape[1:3], (size, size), (stride, stride), padding)
    return jnp.pad(batch, ((0, 0), *pads, (0, 0))) if padding == "SAME" else batch
