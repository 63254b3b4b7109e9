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
            _send_until_taken()
        else:
            before(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _send_until_taken() -> None:
    """Send SIGINT to the main thread, which calls this, until Python has acted on it.

    Once is not enough: a signal that comes between Python's last look and the start of a system call is noticed only
    when that call ends, and a wait for a result ends late or never.
    """
    taken = threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def take(number: int, frame: Any) -> Any:
        taken.set()
        signal.signal(signal.SIGINT, handler)
        return handler(number, frame) if callable(handler) else None

    def send() -> None:
        while not taken.wait(0.05):  # Not at once: that would be in Python's hook for lost errors.
            signal.pthread_kill(main, signal.SIGINT)
            if signal.getsignal(signal.SIGINT) is not take:
                return  # It was taken, or somebody else hears of signals now, to whom one is enough.

    main = threading.get_ident()
    signal.signal(signal.SIGINT, take)
    threading.Thread(target=send, name="motet-interrupt", daemon=True).start()


def leave(code: int) -> NoReturn:
    """End the process here: after an interrupt inside XLA's compiler, Python's own shutdown crashes in jaxlib."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
