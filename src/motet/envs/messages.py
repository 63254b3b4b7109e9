"""What goes over the socket between a pool and a worker: the start, and the worker's last words. Never a step."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from motet.envs.form import Form
from motet.envs.group import Seats
from motet.errors import BadAlgorithm, BadEnvironment, EnvironmentFailed

LENGTH = struct.Struct("<Q")

CLOSE, RESET, STEP = range(3)
"""What a worker can be told to do."""

COMMAND, SLOT, AT = range(3)
"""The words that each worker has in shared memory: what to do, in which slot, and the row it is working on."""

WORDS = 16
"""Words for each worker: two cache lines."""

OUTSIDE = 8
"""Where among them its record of observations outside of bounds begins (see `motet.bounds`), in floats."""

ERRORS = {kind.__name__: kind for kind in (BadAlgorithm, BadEnvironment, EnvironmentFailed)}
"""Errors that keep their kind on the way from a worker to the pool; any other arrives as `EnvironmentFailed`."""


@dataclass(frozen=True)
class Setup:
    """What a worker is started with."""

    build: bytes
    """The pickled `Build`."""
    form: Form
    piece: Seats
    number: int
    """Its own number."""
    workers: int
    count: int
    """Environments of the whole pool."""
    rows: slice
    """Which of them are its own."""
    registrations: tuple[bytes, ...] = ()
    """What Gymnasium should know, each pickled."""

    @property
    def header(self) -> int:
        """The bytes before the slots."""
        return self.workers * WORDS * 8


def send(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(LENGTH.pack(len(payload)) + payload)


def receive(channel: socket.socket) -> bytes | None:
    """The next message, or None if the other side is gone."""
    head = _exactly(channel, LENGTH.size)
    return None if head is None else _exactly(channel, LENGTH.unpack(head)[0])


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    chunks = []
    while size:
        try:
            chunk = channel.recv(min(size, 1 << 20))
        except ConnectionError:
            return None
        if not chunk:
            return None
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def send_words(channel: socket.socket, **words: Any) -> None:
    """A small message of names and plain values; a worker's answers are of this kind, and no code can hide in them."""
    send(channel, json.dumps(words).encode())


def receive_words(channel: socket.socket) -> dict[str, Any] | None:
    message = receive(channel)
    return None if message is None else json.loads(message)
