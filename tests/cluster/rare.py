"""Pairs of an algorithm and a plan that differ little from others: `make hosts` runs them too."""

from __future__ import annotations

from typing import Any

import pytest


def rare(*pairs: tuple[str, str]) -> list[Any]:
    """Parameters that `make cluster` leaves out."""
    return [pytest.param(*pair, marks=pytest.mark.rare) for pair in pairs]
