"""The spaces of other libraries as motet's.

Gymnasium, EnvPool and gymnax name their spaces and their parts alike, so one function reads all of them, by name and
without importing any of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.errors import BadEnvironment
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float64).tiny)


def space_of(owner: str, foreign: Any) -> Space:
    """The motet space that is equal to `foreign`, a space of the environment that is called `owner`."""
    kind = type(foreign).__name__
    if kind == "Discrete":
        if getattr(foreign, "start", 0) != 0:
            raise BadEnvironment(f"{owner} counts from {foreign.start} in {foreign}; motet's Discrete counts from 0.")
        return Discrete(int(foreign.n))
    if kind == "Box":
        return _box(foreign)
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(int(n) for n in np.ravel(foreign.nvec)))
    if kind == "MultiBinary":
        return MultiBinary(tuple(foreign.shape))
    if kind == "Dict":
        return Dict({name: space_of(owner, part) for name, part in foreign.spaces.items()})
    if kind == "Tuple":
        return Tuple(tuple(space_of(owner, part) for part in foreign.spaces))
    raise BadEnvironment(
        f"{owner} has a space that motet does not know: {foreign}. It knows Discrete, Box, MultiDiscrete, MultiBinary, "
        "and Dict and Tuple of these."
    )


def _box(foreign: Any) -> Box:
    dtype = np.dtype(foreign.dtype)
    shape = tuple(int(size) for size in foreign.shape)
    low, high = (np.broadcast_to(np.asarray(bound), shape) for bound in (foreign.low, foreign.high))
    if dtype.kind == "f":
        # The largest number of a type stands for no bound at all. EnvPool also writes the smallest positive one
        # where it means the most negative.
        low = np.where((low <= -LARGEST) | (low == SMALLEST), -np.inf, low.astype(np.float64))
        high = np.where(high >= LARGEST, np.inf, high.astype(np.float64))
    return Box(_bound(low), _bound(high), shape, _narrow(dtype))


def _bound(array: np.ndarray) -> float | tuple[float, ...]:
    """One number where it is the same everywhere."""
    values = array.ravel().tolist()
    return values[0] if len(set(values)) == 1 else tuple(values)


def _narrow(dtype: np.dtype) -> str:
    """The name of a type that JAX has: doubles and 64-bit integers become its defaults."""
    if dtype.kind == "f":
        return "float"
    return {"int64": "int32", "uint64": "uint32"}.get(dtype.name, dtype.name)
