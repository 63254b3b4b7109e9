"""Memory that processes share, and bells that wake them."""

from __future__ import annotations

import mmap
import os
import select
import time


def attach(memory: int) -> mmap.mmap:
    """The memory behind a descriptor, mapped into this process."""
    return mmap.mmap(memory, os.fstat(memory).st_size)


class Bell:
    """One process rings, the other waits: an eventfd, or a pipe where there is none. Rings that nobody has heard yet
    count as one."""

    def __init__(self, hear: int, ring: int):
        self.hear, self._ring = hear, ring
        self._is_event = hear == ring

    @classmethod
    def new(cls) -> Bell:
        if hasattr(os, "eventfd"):
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(event, event)
        hear, ring = os.pipe()
        os.set_blocking(hear, False)
        return cls(hear, ring)

    @property
    def descriptors(self) -> tuple[int, int]:
        return self.hear, self._ring

    def ring(self) -> None:
        if self._is_event:
            os.eventfd_write(self._ring, 1)
        else:
            os.write(self._ring, b"!")

    def heard(self) -> bool:
        """Whether it has rung since it was last heard."""
        try:
            if self._is_event:
                os.eventfd_read(self.hear)
            else:
                os.read(self.hear, 64)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        """Sleep until it rings."""
        poll = select.poll()  # not select(), which takes no descriptor above 1023
        poll.register(self.hear, select.POLLIN)
        while not self.heard():
            poll.poll()

    def close(self) -> None:
        for descriptor in {self.hear, self._ring}:
            os.close(descriptor)


class Waiter:
    """Waits for a bell: awake for a moment if the last ring came within one, asleep otherwise.

    To wake a processor that sleeps takes as long as a few cheap environments. Whoever is asked again and again need
    not sleep in between; whoever is asked rarely must not keep a processor busy.
    """

    MOMENT = 200e-6

    def __init__(self, bell: Bell):
        self.bell, self.brief = bell, False

    def wait(self) -> None:
        began = time.perf_counter()
        while self.brief and time.perf_counter() - began < self.MOMENT:
            if self.bell.heard():
                return
            os.sched_yield()
        self.bell.wait()
        self.brief = time.perf_counter() - began < self.MOMENT
