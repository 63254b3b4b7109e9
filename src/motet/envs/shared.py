"""Memory that processes share, and bells that wake them."""

from __future__ import annotations

import mmap
import os
import tempfile

from motet.errors import NotEnoughMemory


def reserve(size: int, purpose: str) -> int:
    """A file descriptor of `size` bytes of memory that no name leads to: it is gone when the last process closes it.

    The bytes are taken now. Otherwise too little memory would show as a SIGBUS in the middle of a step.
    """
    memory = _nameless()
    try:
        os.ftruncate(memory, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(memory, 0, size)
    except OSError as error:
        os.close(memory)
        raise NotEnoughMemory(
            f"{purpose} needs {size:,} bytes of shared memory, which cannot be had: {error.strerror}. "
            "Use fewer environments or smaller observations, or allow this process more memory."
        ) from error
    return memory


def attach(memory: int) -> mmap.mmap:
    """The memory behind a descriptor, mapped into this process."""
    return mmap.mmap(memory, os.fstat(memory).st_size)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("motet", os.MFD_CLOEXEC)
    memory, path = tempfile.mkstemp(prefix="motet-")
    os.unlink(path)
    return memory


class Bell:
    """One process rings, the other waits: an eventfd, or a pipe where there is none. Rings that nobody has heard yet
    count as one."""

    def __init__(self, hear: int, ring: int):
        self.hear, self._ring = hear, ring
        self._is_event = hear == ring

    @classmethod
    def new(cls) -> Bell:
        if hasattr(os, "eventfd"):
            event = os.eventfd(0, os.EFD_CLOEXEC)
            return cls(event, event)
        return cls(*os.pipe())

    @property
    def descriptors(self) -> tuple[int, int]:
        return self.hear, self._ring

    def ring(self) -> None:
        if self._is_event:
            os.eventfd_write(self._ring, 1)
        else:
            os.write(self._ring, b"!")

    def wait(self) -> None:
        """Sleep until it rings."""
        if self._is_event:
            os.eventfd_read(self.hear)
        else:
            os.read(self.hear, 64)

    def close(self) -> None:
        for descriptor in {self.hear, self._ring}:
            os.close(descriptor)
