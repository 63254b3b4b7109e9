"""The main program of a worker process: `python -m motet.envs.child`, started by a pool.

It is a new Python, not a fork of the caller, and does not import the caller's main module. It never imports JAX.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Before anything slow: whether Ctrl-C ends the run is the pool's say.

import contextlib
import gc
import os
import pickle
import select
import socket
import sys
import threading
import time
import traceback
from typing import NoReturn

import numpy as np

from motet.bounds import RECORD
from motet.envs.by_id import register_all
from motet.envs.group import Build, Group
from motet.envs.messages import (
    AT,
    CLOSE,
    COMMAND,
    ERRORS,
    OUTSIDE,
    RESET,
    SLOT,
    WORDS,
    Setup,
    receive,
    receive_words,
    send_words,
)
from motet.envs.shared import Bell, Waiter, attach
from motet.envs.slots import slots_over
from motet.errors import BadEnvironment, EnvironmentFailed, MotetError, described
from motet.flow.host import numbered

LAST_GRACE = 2.0
"""Seconds that a step may still take after the pool's process is gone."""


def main(control: int, memory: int, wake: tuple[int, int], done: tuple[int, int]) -> int:
    for descriptor in {control, memory, *wake, *done}:
        os.set_inheritable(descriptor, False)  # Or a process that an environment starts would keep the socket open.
    channel = socket.socket(fileno=control)
    setup = _receive_setup(channel)
    if setup is None:
        return 1
    shared = attach(memory)
    os.close(memory)
    words = memoryview(shared)[setup.number * WORDS * 8 : (setup.number + 1) * WORDS * 8].cast("q")
    record = np.frombuffer(shared, np.float64, RECORD, (setup.number * WORDS + OUTSIDE) * 8)
    wake_bell, done_bell = Bell(*wake), Bell(*done)
    group, me = None, os.getpid()
    try:
        threading.Thread(target=_watch, args=(channel, words, wake_bell), daemon=True).start()
        register_all(setup.registrations)
        build: Build = pickle.loads(setup.build)
        group = build(setup.piece, words[AT : AT + 1], record)
        gc.collect()
        gc.freeze()  # What is here now stays; the collector need not look at it again.
        send_words(channel, kind="ready")
        slots = [slot.rows(setup.rows) for slot in slots_over(shared, setup.header, setup.form, setup.count)]
        waiter = Waiter(wake_bell)
        while True:
            waiter.wait()
            command, slot = words[COMMAND], slots[words[SLOT]]
            if command == CLOSE:
                return 0
            (group.reset if command == RESET else group.step)(slot)
            if os.getpid() != me:
                _leave_as_a_copy(channel, setup, words)
            done_bell.ring()
    except BaseException as error:
        _report(channel, error)
        return 1
    finally:
        _close(group)


def _leave_as_a_copy(channel: socket.socket, setup: Setup, words: memoryview) -> NoReturn:
    """An environment has forked, and its child came back as if it were this worker. Two cannot be."""
    who = f"Environment {numbered(setup.piece.first + words[AT])} ({setup.form.name})"
    _report(
        channel,
        BadEnvironment(
            f"{who} forked, and the child returned from the environment's code instead of ending there. "
            "End what os.fork() starts with os._exit(), or use subprocess or multiprocessing."
        ),
    )
    os._exit(1)


def _guard(channel: int, worker: int) -> None:
    """Run in a process of its own, beside the worker: ends it when the pool's process is gone, even if an environment
    hangs in native code that never lets Python's threads run."""
    poll = select.poll()
    poll.register(channel, 0)  # only its end
    while not poll.poll(1000):
        if os.getppid() != worker:
            return
    deadline = time.monotonic() + LAST_GRACE + 1.0
    while time.monotonic() < deadline:
        if os.getppid() != worker:
            return
        time.sleep(0.05)
    os.killpg(worker, signal.SIGKILL)


def _receive_setup(channel: socket.socket) -> Setup | None:
    """First where modules are found, as the pool's process finds them; then what may need them."""
    found = receive_words(channel)
    if found is None:
        return None
    sys.path[:] = found["path"]
    # What was only for the start of this process is not for those that an environment may start.
    os.environ.pop("PYTHONPATH", None)
    os.environ.update(found["environment"])
    message = receive(channel)
    return None if message is None else pickle.loads(message)


def _watch(channel: socket.socket, words: memoryview, wake: Bell) -> None:
    """Ends this process when the pool's is gone, even if an environment hangs."""
    poll = select.poll()
    poll.register(channel, select.POLLHUP)
    poll.poll()
    words[COMMAND] = CLOSE
    wake.ring()
    time.sleep(LAST_GRACE)
    os._exit(1)


def _report(channel: socket.socket, error: BaseException) -> None:
    """Last words. The traceback goes as text: the error itself may not be picklable, and nobody should unpickle it."""
    cause = error.__cause__ if isinstance(error, EnvironmentFailed) and error.__cause__ else error
    trace = "" if isinstance(error, MotetError) and cause is error else "".join(traceback.format_exception(cause))
    known = isinstance(error, MotetError)
    with contextlib.suppress(OSError):
        send_words(
            channel,
            kind="error",
            type=type(error).__name__ if type(error).__name__ in ERRORS else "EnvironmentFailed",
            message=str(error) if known else described(error),
            traceback=trace,
            index=getattr(error, "index", None),
            step=getattr(error, "step", None),
        )


def _close(group: Group | None) -> None:
    if group is not None:
        group.close()
    with contextlib.suppress(Exception):
        sys.stdout.flush()


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    worker = os.getpid()
    if not os.fork():  # now: later there will be threads
        for each in {*numbers[1:]}:
            os.close(each)
        _guard(numbers[0], worker)
        os._exit(0)
    sys.exit(main(numbers[0], numbers[1], (numbers[2], numbers[3]), (numbers[4], numbers[5])))
