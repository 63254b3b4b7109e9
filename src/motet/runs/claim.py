"""A run's folder belongs to one living run: whoever holds the lock of its file `running`.

The system lets go of a lock when its process ends, however it ends. So a folder whose run was killed is free, and the
file that is left only says which process it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from motet.errors import BadOption

RUNNING = "running"


class Claim:
    """Holds a folder until `release`."""

    def __init__(self, folder: Path):
        self._file = folder / RUNNING
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                raise in_use(folder) from None
            if self._is_there():
                break
            os.close(self._descriptor)  # somebody has just let go of it, and removed it
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def _is_there(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(self._file), os.fstat(self._descriptor))
        return False

    def release(self) -> None:
        """Let go of the folder."""
        with contextlib.suppress(OSError):
            self._file.unlink()
        os.close(self._descriptor)


def is_claimed(folder: Path) -> bool:
    """Whether a living run has the folder."""
    try:
        descriptor = os.open(folder / RUNNING, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def in_use(folder: Path) -> BadOption:
    try:
        process = f"process {int((folder / RUNNING).read_text())}"
    except (OSError, ValueError):
        process = "another process"
    return BadOption(f"The folder {folder} is in use by the run of {process}; name another one with run_dir.")
