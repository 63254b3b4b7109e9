"""Which tests belong together: each of pytest's processes caches for itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sharing(group: str) -> pytest.MarkDecorator:
    """One process runs all tests that are marked so: what they compare with is compiled and run once."""
    return pytest.mark.xdist_group(group)


def grouped(pairs: Iterable[tuple[str, *tuple[Any, ...]]], prefix: str = "") -> list[Any]:
    """Parameters of tests of (algorithm, something ...), those of an algorithm together."""
    return [pytest.param(*pair, marks=sharing(prefix + pair[0])) for pair in pairs]
