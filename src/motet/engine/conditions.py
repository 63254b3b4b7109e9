"""What holds while motet trains, and not before or after: where compiled programs are kept, how CPUs compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from motet.engine import cache
from motet.engine.cpu.prepare import prepared


class Together:
    """A setting of the whole process under which several threads may work at once: whoever comes first makes it, and
    whoever leaves last puts back what was there before."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]):
        self._make = make
        self._changing = threading.Lock()
        self._inside = 0
        self._held: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        with self._changing:
            if not self._inside:
                held = self._make()
                held.__enter__()
                self._held = held
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._inside -= 1
            if not self._inside and self._held is not None:
                held, self._held = self._held, None
                held.__exit__(None, None, None)


kept = Together(cache.kept)
"""What is compiled meanwhile is kept for the next process."""
at_once = Together(prepared)
"""Who asks for something to be computed computes it."""


@contextmanager
def conditions() -> Iterator[None]:
    """Whoever trains, measures or tests does it here."""
    with kept, at_once:
        yield
