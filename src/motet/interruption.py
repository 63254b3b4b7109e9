"""Ctrl-C and SIGTERM while a run that is saved goes on: the first stops it at a cut, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

HANDLED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals, and what happens to them if nobody has said otherwise. Whoever has keeps his own way, as a shell does
that starts a job in the background without Ctrl-C."""


class Caught:
    """The signal that came, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None


@contextmanager
def stopping(stop: Callable[[], bool], say: Callable[[str], None]) -> Iterator[Caught]:
    """Inside, the first signal calls `stop`; one that comes again, or before `stop` could do anything (False), raises
    KeyboardInterrupt. `say` is told what happens."""
    caught = Caught()

    def handle(number: int, frame: Any) -> None:
        if caught.signal is not None or not stop():
            caught.signal = number
            raise KeyboardInterrupt
        caught.signal = number
        say("stopping after this iteration, to save the run; once more ends it at once")

    if threading.current_thread() is not threading.main_thread():
        yield caught  # only the main thread hears of signals
        return
    mine = [number for number, usual in HANDLED.items() if signal.getsignal(number) == usual]
    before = {number: signal.signal(number, handle) for number in mine}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
