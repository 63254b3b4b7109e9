"""What observations and actions look like: the vocabulary between environments and algorithms."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


def random_index(key: jax.Array, count: jax.Array | int) -> jax.Array:
    """0 to count - 1, from one draw of 32 bits: half the work of `randint`, with a bias of count / 2^32."""
    return (jax.random.bits(key) % jnp.asarray(count, jnp.uint32)).astype(jnp.int32)


@dataclass(frozen=True)
class Discrete:
    """The integers 0 to n - 1."""

    n: int

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((), jnp.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        return random_index(key, self.n)

    def __str__(self) -> str:
        return f"Discrete({self.n})"


@dataclass(frozen=True)
class Box:
    """Arrays of one shape between two bounds; the bounds are scalars or tuples of the shape's size, flattened."""

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float"
    """A NumPy dtype name; "float" is JAX's default float (float32, or float64 under jax_enable_x64)."""

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        dtype = jnp.result_type(float) if self.dtype == "float" else np.dtype(self.dtype)
        return jax.ShapeDtypeStruct(self.shape, dtype)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper bound, each of the space's shape."""

        def full(bound: float | tuple[float, ...]) -> np.ndarray:
            array = np.asarray(bound, self.aval.dtype)
            return np.broadcast_to(array, self.shape) if array.ndim == 0 else array.reshape(self.shape)

        return full(self.low), full(self.high)

    def sample(self, key: jax.Array) -> jax.Array:
        low, high = (np.clip(bound, -1e6, 1e6) for bound in self.bounds)
        return jax.random.uniform(key, self.shape, jnp.result_type(float), low, high).astype(self.aval.dtype)

    def __str__(self) -> str:
        return f"Box(shape={self.shape}, dtype={self.aval.dtype})"


Space = Discrete | Box
