"""One switch for all tricks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "MOTET_PLAIN_JAX"


class _Switch:
    plain = os.environ.get(VARIABLE, "") not in ("", "0")


def enabled() -> bool:
    """Whether private parts of JAX may be used."""
    return not _Switch.plain


@contextmanager
def plain() -> Iterator[None]:
    """Use public JAX alone: for whatever is compiled meanwhile, by any thread."""
    before, _Switch.plain = _Switch.plain, True
    try:
        yield
    finally:
        _Switch.plain = before
