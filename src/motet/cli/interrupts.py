"""Ctrl-C, wherever it comes: it is neither lost nor does it crash."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


@contextmanager
def insistent_interrupts() -> Iterator[None]:
    """Raise Ctrl-C once more where it was lost: JAX has a callback in garbage collection, whose errors Python drops."""
    before = sys.unraisablehook

    def again(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # Not at once: that would be in this very hook.
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        else:
            before(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def leave(code: int) -> NoReturn:
    """End the process here: after an interrupt inside XLA's compiler, Python's own shutdown crashes in jaxlib."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
