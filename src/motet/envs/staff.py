"""The workers of a pool, and what must be given back when it is closed or forgotten."""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass, field

from motet.envs.process import Process, end_all

GRACE = 5.0
"""Seconds that an idle worker may take to close its environments."""


@dataclass
class PoolWorker:
    """A worker's share of the pool, which outlives the process that it runs in."""

    number: int
    rows: slice
    process: Process
    words: memoryview
    busy: str = ""
    """What it is doing now, in a word for messages; empty if it waits to be told."""
    deadline: float = 0.0
    slot: int = 0
    lost: bool = False
    """Whether the step that it is in never comes back, because its process died."""
    dead: bool = False
    """Whether its process died while it had nothing to do. It is started anew when there is something."""
    deaths: int = 0
    unreported: int = 0
    """Restarts that no step has told of yet."""


@dataclass
class Belongings:
    """What must be given back, kept apart from the pool so that it can be when the pool is forgotten."""

    memory: int
    shared: mmap.mmap
    owner: int = field(default_factory=os.getpid)
    workers: list[PoolWorker] = field(default_factory=list)

    def give_back(self) -> None:
        if os.getpid() != self.owner:  # A fork of the owner: the workers are not its own.
            return
        workers, self.workers = self.workers, []
        try:
            end_all([(worker.process, worker.words, not worker.busy) for worker in workers], GRACE)
        finally:
            for worker in workers:
                worker.words.release()
            os.close(self.memory)
            # If the caller still has arrays of a step, the mapping lives as long as they do.
            with contextlib.suppress(BufferError):
                self.shared.close()
