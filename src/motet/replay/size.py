"""How many bytes a replay takes, said before they are taken."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from motet.errors import BadOption


def machine_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def tree_bytes(tree: Any) -> int:
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def in_words(count: int) -> str:
    """Bytes in the unit that suits them."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{count} bytes"


def check_fits(need: int, capacity: int, available: int, where: str) -> None:
    """Refuse a replay of more bytes than there are, and name a capacity that would fit."""
    if need > available:
        raise BadOption(
            f"A replay of {capacity:,} items needs {in_words(need)}, but {where} has {in_words(available)}; "
            f"capacity={int(capacity * 0.95 * available / need):,} would fit."
        )
