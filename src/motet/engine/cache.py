"""The persistent compilation cache: a program that was compiled once starts at once the next time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax


@contextmanager
def kept() -> Iterator[None]:
    """Keep programs that are compiled meanwhile in the user's cache folder, unless JAX was told of another place."""
    folder = _folder()
    if folder is None or jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        yield
        return
    wanted = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.2,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        with suppress(ImportError):  # else JAX would go on with the folder that it knows
            from jax.experimental.compilation_cache import compilation_cache

            compilation_cache.reset_cache()


def _folder() -> str | None:
    """The user's cache folder; None for a user without a home."""
    try:
        return str(Path.home() / ".cache" / "motet" / "xla")
    except RuntimeError:
        return None


_bypassing = threading.Lock()
_bypasses = 0
_threshold = 0.0


@contextmanager
def bypassed() -> Iterator[None]:
    """Compile without leaving anything in the cache; meanwhile no other thread does either.

    A program over several CPU devices crashes the process when it is read back (seen with jaxlib 0.10.2, four devices
    and two cores), so such programs are never written.
    """
    global _bypasses, _threshold
    name = "jax_persistent_cache_min_compile_time_secs"
    with _bypassing:
        if not _bypasses:
            _threshold = getattr(jax.config, name)
            jax.config.update(name, float("inf"))
        _bypasses += 1
    try:
        yield
    finally:
        with _bypassing:
            _bypasses -= 1
            if not _bypasses:
                jax.config.update(name, _threshold)


class _Seen(threading.local):
    """What JAX said of its cache in this thread."""

    requests = 0
    hits = 0


_seen = _Seen()


def hits() -> int:
    """How many programs this thread has found in the cache."""
    _listen()
    return _seen.hits


@contextmanager
def watched() -> Iterator[Callable[[], bool]]:
    """Compile one program -> whether it is certain that it was compiled, and not found in the cache."""
    _listen()
    requests, found = _seen.requests, _seen.hits

    def is_new() -> bool:
        unused = jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]
        return (unused or _seen.requests > requests) and _seen.hits == found

    yield is_new


@functools.cache
def _listen() -> None:
    def note(event: str, **_: Any) -> None:
        _seen.requests += event == "/jax/compilation_cache/compile_requests_use_cache"
        _seen.hits += event == "/jax/compilation_cache/cache_hits"

    jax.monitoring.register_event_listener(note)
