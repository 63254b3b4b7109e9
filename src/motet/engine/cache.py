"""The persistent compilation cache: a program that was compiled once starts at once the next time."""

from __future__ import annotations

from pathlib import Path

import jax


def enable() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX was told of another place."""
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "motet" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
