"""Environments: written in JAX, or adapted from other libraries, found by their names.

Nothing is imported before it is asked for: worker processes live in this package and must not load JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.envs.registry import as_environment, code_of, describe, make, origin

__all__ = ["as_environment", "code_of", "describe", "make", "origin"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'motet.envs' has no attribute {name!r}")
    from motet.envs import registry

    return getattr(registry, name)
