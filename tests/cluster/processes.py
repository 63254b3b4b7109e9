"""The processes of runs over hosts, in the Ray cluster that this process has started."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

_seen: set[int] = set()
"""Hosts that were found once: one whose raylet is gone has another parent."""


def hosts() -> list[int]:
    """The processes that are hosts of a run."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            is_host = place.joinpath("cmdline").read_bytes().startswith(b"ray::_RayHost")
            if is_host and (int(place.name) in _seen or _parent(_parent(int(place.name))) == os.getpid()):
                found.append(int(place.name))
        except OSError:
            continue
    _seen.update(found)
    return sorted(found)


def _parent(pid: int) -> int:
    """Of a host it is a raylet, and of a raylet whoever started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(seconds: float, before: Collection[int] = ()) -> bool:
    """Whether all hosts but those of before have ended, or do in time."""
    deadline = time.monotonic() + seconds
    while set(hosts()) - set(before):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
