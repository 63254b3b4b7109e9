"""What a run must not leave behind: processes, threads, descriptors, shared memory."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT = ("close ", "motet ", "of an environment")
"""Threads that nobody can end: those inside of an environment's code that hangs, and its own."""
MARK = "MOTET_ATTACK"
"""The variable by which the processes of a case are known, whoever started them."""


def children(of: int | str = "self") -> set[int]:
    """The processes that one has started and not yet waited for."""
    return {int(pid) for task in Path(f"/proc/{of}/task").iterdir() for pid in _read(task / "children").split()}


def marked(mark: str) -> list[int]:
    """The processes that have the mark and are not over."""
    sought = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and sought in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def descriptors() -> set[str]:
    """All open ones but files and devices, which Python and JAX open and close as they like."""
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if not target.startswith("/") or target.startswith("/memfd:motet") or "/run/" in target:
            found.add(f"{entry} {target}")
    return found


def shared_memory() -> set[str]:
    """What of motet's is mapped here, and what has a name."""
    mapped = {line for line in _read(Path("/proc/self/maps")).splitlines() if "memfd:motet" in line}
    return mapped | {name for name in os.listdir("/dev/shm") if name.startswith(("motet", "psm_", "wnsm_"))}


def threads(hanging: bool) -> set[str]:
    return {
        f"{each.name} {each.ident}"
        for each in threading.enumerate()
        if not (hanging and each.name.startswith(KEPT)) and not each.name.startswith("execnet")
    }


@contextmanager
def nothing_left(*, hanging: bool = False, within: float = 5.0) -> Iterator[None]:
    """Nothing is there that was not before, at the latest after so many seconds; `hanging` threads are left alone."""

    def now() -> set[object]:
        return {*children(), *descriptors(), *shared_memory(), *threads(hanging)}

    before = now()
    yield
    gc.collect()  # errors and the frames that they hold are circles
    deadline = time.monotonic() + within
    while (left := now() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, left


def _read(path: Path) -> str:
    """Nothing, of a process or thread that has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""
