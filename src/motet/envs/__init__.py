"""Environments written in JAX, found by the names Gymnasium gives them."""

from motet.envs.registry import describe, make

__all__ = ["describe", "make"]
