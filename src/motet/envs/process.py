"""One worker process, seen from the pool: how it is started, told what to do, and ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import motet
from motet.envs.messages import AT, CLOSE, COMMAND, SLOT, send, send_words
from motet.envs.shared import Bell

QUIET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""One worker is one thread of work: more would fight the other workers for cores."""

KILLED = 10.0
"""Seconds after which a process that was killed and has not ended is given up."""


class Process:
    """A child that runs `motet.envs.child`, with its socket and its two bells."""

    def __init__(self, memory: int):
        with contextlib.ExitStack() as undo:
            self.wake = Bell.new()
            undo.callback(self.wake.close)
            self.done = Bell.new()
            undo.callback(self.done.close)
            self.channel, theirs = socket.socketpair()
            undo.enter_context(self.channel)
            numbers = (theirs.fileno(), memory, *self.wake.descriptors, *self.done.descriptors)
            with theirs:
                self.popen = subprocess.Popen(
                    # -P: a file in the current folder must not stand in for a module of the same name.
                    [sys.executable, "-P", "-m", "motet.envs.child", *map(str, numbers)],
                    pass_fds=sorted(set(numbers)),
                    stdin=subprocess.DEVNULL,  # The terminal's input is the caller's.
                    env=_environment(),
                    process_group=0,  # its own: what it starts and leaves can be ended with it
                )
            self.ended = _watched(self.popen.pid)
            if self.ended is not None:
                undo.callback(os.close, self.ended)
            self._close_descriptors = undo.pop_all().close

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to listen to, in the order in which to take note of what happened at once: work that was done counts,
        then last words, then the end."""
        return (self.done.hear, self.channel.fileno(), *(() if self.ended is None else (self.ended,)))

    def has_words(self) -> bool:
        """Whether something waits in the socket, its end included."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        return bool(poll.poll(0))

    def send_setup(self, setup: bytes, timeout: float) -> None:
        """If the child is dead already, whoever waits for it will see that."""
        self.channel.settimeout(timeout)
        with contextlib.suppress(OSError):
            kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
            send_words(self.channel, path=[path or os.getcwd() for path in sys.path], environment=kept)
            send(self.channel, setup)
        self.channel.settimeout(None)

    def command(self, words: memoryview, command: int, slot: int) -> None:
        words[COMMAND], words[SLOT] = command, slot
        self.wake.ring()

    def how_it_ended(self) -> str:
        """In words; waits for the end, and helps if it does not come."""
        if not self.wait(2.0):
            self.popen.kill()
        code = self.popen.wait()
        if code >= 0:
            return f"it exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"it was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"it was killed by signal {-code}"

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, or does so in time; what it had started and left is ended then."""
        if self.popen.returncode is not None:
            return True
        if self.ended is not None:
            poll = select.poll()
            poll.register(self.ended, select.POLLIN)
            if not poll.poll(seconds * 1000):
                return False
        else:
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        return True

    def forget(self) -> None:
        """Make sure that it has ended, and close what led to it."""
        if not self.wait(0.0):
            self.popen.kill()
            self.wait(KILLED)
        self._close_descriptors()


def end_all(processes: list[tuple[Process, memoryview, bool]], grace: float) -> None:
    """Ask every process to end; end those that do not, first politely. Idle ones get longer to close their
    environments than those that may hang in a step."""
    for process, words, _ in processes:
        process.command(words, CLOSE, 0)
    began = time.monotonic()
    for process, _, is_idle in processes:
        _join(process, began + (grace if is_idle else grace / 5))
    stubborn = [process for process, _, _ in processes if not process.wait(0.0)]
    for process in stubborn:
        process.popen.terminate()
    began = time.monotonic()
    for process in stubborn:
        _join(process, began + grace / 5)
    for process, _, _ in processes:
        process.forget()


def where_it_is(words: memoryview) -> int:
    """The row that the worker is working on."""
    return words[AT]


def _join(process: Process, deadline: float) -> None:
    process.wait(max(0.0, deadline - time.monotonic()))


def _watched(pid: int) -> int | None:
    """A descriptor that tells when the process ends, where there are such. The end of its socket does not: a process
    that it has forked may hold that open."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _environment() -> dict[str, str]:
    """The caller's environment, with motet where Python looks first: it may have been found by other means."""
    found = [str(Path(motet.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, found))}
    # A user's module that imports JAX must not take the accelerator from the run.
    return {**os.environ, **QUIET, **paths, "JAX_PLATFORMS": "cpu"}
