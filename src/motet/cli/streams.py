"""Where commands write: streams that were closed, and readers that have left."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def open_closed_streams() -> None:
    """Whoever closed them (`>&-`) wants to see nothing; others expect that they are there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # whose locale may know no × and no ↑
            stream.reconfigure(errors="replace")


def nobody_reads() -> None:
    """Write to nowhere from now on: whoever read has left, and Python would complain once more when it flushes at
    exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def whoever_reads() -> Iterator[None]:
    """What is printed inside is only told: if nobody reads it any more, all is well without."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nobody_reads()
