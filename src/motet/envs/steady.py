"""Environment states of other libraries with types that do not change from a reset to a step.

They are often built of Python numbers, whose types JAX calls weak and lets grow; a loop needs the same in every round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def steady_types(reset: Callable[[Any], Any], step: Callable[[Any, Any, Any], Any], action: Any) -> Any:
    """The smallest types that hold the states of both functions, as a tree of jax.ShapeDtypeStruct.

    `reset(key)` and `step(state, action, key)` return states; `action` is abstract, too.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    types = _strong(jax.eval_shape(reset, key))
    while True:
        after = jax.eval_shape(step, types, action, key)
        joined = jax.tree.map(_join, types, after)
        if joined == types:
            return types
        types = joined


def as_types(tree: Any, types: Any) -> Any:
    """The tree with each leaf cast to its type."""
    return jax.tree.map(lambda type_, leaf: jnp.asarray(leaf, type_.dtype), types, tree)


def _strong(types: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), types)


def _join(one: Any, other: Any) -> jax.ShapeDtypeStruct:
    if one.dtype == other.dtype:  # also those that do not promote, such as keys
        return one
    return jax.ShapeDtypeStruct(one.shape, jnp.promote_types(one.dtype, other.dtype))
