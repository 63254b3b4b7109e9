"""The persistent compilation cache: a program that was compiled once starts at once the next time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax


def enable() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX was told of another place."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "motet" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@contextmanager
def bypassed() -> Iterator[None]:
    """Compile without leaving anything in the cache.

    A program over several CPU devices crashes the process when it is read back (seen with jaxlib 0.10.2, four devices
    and two cores), so such programs are never written.
    """
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, before)


class _Hits(threading.local):
    count = 0


_hits = _Hits()


def hits() -> int:
    """How many programs this thread has found in the cache."""
    _count_hits()
    return _hits.count


@functools.cache
def _count_hits() -> None:
    def note(event: str, **_: Any) -> None:
        _hits.count += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_listener(note)
