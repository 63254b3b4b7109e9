"""What observations and actions look like: the vocabulary between environments and algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class MultiDiscrete:
    """Several integers side by side: number i is 0 to nvec[i] - 1."""

    nvec: tuple[int, ...]

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((len(self.nvec),), jnp.int32)

    def sample(self, key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, len(self.nvec))
        return jax.vmap(random_index)(keys, jnp.asarray(self.nvec, jnp.uint32))

    def __str__(self) -> str:
        return f"MultiDiscrete({', '.join(map(str, self.nvec))})"


@dataclass(frozen=True)
class MultiBinary:
    """An array of zeros and ones."""

    shape: tuple[int, ...]

    @property
    def aval(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, jnp.int8)

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(key, shape=self.shape).astype(jnp.int8)

    def __str__(self) -> str:
        return f"MultiBinary(shape={self.shape})"


@dataclass(frozen=True)
class Dict:
    """Named spaces; its values are dictionaries."""

    items: tuple[tuple[str, Space], ...]
    """The parts, sorted by name: the order of JAX's pytrees."""

    def __init__(self, spaces: Mapping[str, Space] | tuple[tuple[str, Space], ...]):
        pairs = spaces.items() if isinstance(spaces, Mapping) else spaces
        object.__setattr__(self, "items", tuple(sorted(pairs)))

    @property
    def aval(self) -> Any:
        return {name: space.aval for name, space in self.items}

    def sample(self, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(self.items))
        return {name: space.sample(each) for each, (name, space) in zip(keys, self.items, strict=True)}

    def __str__(self) -> str:
        return f"Dict({', '.join(f'{name}={space}' for name, space in self.items)})"


@dataclass(frozen=True)
class Tuple:
    """Spaces in order; its values are tuples."""

    spaces: tuple[Space, ...]

    @property
    def aval(self) -> Any:
        return tuple(space.aval for space in self.spaces)

    def sample(self, key: jax.Array) -> Any:
        keys = jax.random.split(key, len(self.spaces))
        return tuple(space.sample(each) for each, space in zip(keys, self.spaces, strict=True))

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.spaces))})"


Space = Discrete | Box | MultiDiscrete | MultiBinary | Dict | Tuple


def parts(space: Space) -> list[Space]:
    """The simple spaces in it, in the order of the leaves of its values."""
    if isinstance(space, Dict):
        return [part for _, each in space.items for part in parts(each)]
    if isinstance(space, Tuple):
        return [part for each in space.spaces for part in parts(each)]
    return [space]
