"""What holds while motet trains, and not before or after: where compiled programs are kept, how CPUs compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from motet.engine import cache
from motet.engine.cpu.prepare import prepared


@contextmanager
def conditions() -> Iterator[None]:
    """Whoever trains, measures or tests does it here."""
    with cache.kept(), prepared():
        yield
