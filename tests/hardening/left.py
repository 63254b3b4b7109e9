"""What a run must not leave behind: processes, threads, descriptors, shared memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = ("close ", "motet ")
"""Threads that nobody can end: those inside of an environment's code that hangs."""


def children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in _read(task / "children").split()}


def descriptors() -> set[str]:
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if target.startswith(("socket:", "anon_inode:[eventfd]", "/memfd:motet")):
            found.add(f"{entry} {target}")
    return found


def mappings() -> int:
    return sum("memfd:motet" in line for line in _read(Path("/proc/self/maps")).splitlines())


def threads(hanging: bool) -> set[str]:
    ours = {thread.name for thread in threading.enumerate() if thread.name.startswith(KEPT)}
    return set() if hanging else ours


@contextmanager
def nothing_left(*, hanging: bool = False, within: float = 3.0) -> Iterator[None]:
    """Everything as before, at the latest after so many seconds; `hanging` threads are left alone."""

    def now() -> tuple[object, ...]:
        return children(), descriptors(), mappings(), threads(hanging)

    before = now()
    yield
    deadline = time.monotonic() + within
    while (after := now()) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert after == before


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
