"""Memory that has no name and may be shared: it is gone when the last process closes it."""

from __future__ import annotations

import os
import tempfile

from motet.errors import NotEnoughMemory


def reserve(size: int, purpose: str, remedy: str) -> int:
    """A file descriptor of `size` bytes, taken now: otherwise too little memory would show as a SIGBUS much later."""
    memory = _nameless()
    try:
        os.ftruncate(memory, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(memory, 0, size)
    except OSError as error:
        os.close(memory)
        raise NotEnoughMemory(
            f"{purpose} needs {size:,} bytes of shared memory, which cannot be had: {error.strerror}. "
            f"{remedy}, or allow this process more memory."
        ) from error
    return memory


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("motet", os.MFD_CLOEXEC)
    memory, path = tempfile.mkstemp(prefix="motet-")
    os.unlink(path)
    return memory
