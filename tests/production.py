"""Tests run what `train` runs: the same settings of JAX, from the first computation on."""

from __future__ import annotations

from typing import Any

import jax

from motet.engine import cache, dispatch


def prepare() -> None:
    """What `train` does to JAX before anything else. `tests/conftest.py` calls it before anything is computed."""
    cache.enable()
    dispatch.inline()
    SETTINGS.update(jax.config.values)


SETTINGS: dict[str, Any] = {}
"""JAX's settings since then."""
