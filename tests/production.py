"""Tests run what `train` runs: the same settings of JAX, from the first computation on."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from typing import Any

import jax

from motet.engine.conditions import conditions

WHILE = ExitStack()
atexit.register(WHILE.close)
"""Stays open as long as the process."""


def prepare() -> None:
    """What holds while `train` runs, for the whole of a test process. `tests/conftest.py` calls it before anything is
    computed."""
    SETTINGS.update({"before": dict(jax.config.values)})
    WHILE.enter_context(conditions())
    SETTINGS.update({"while": dict(jax.config.values)})


SETTINGS: dict[str, Any] = {}
"""JAX's settings before, and since then."""
