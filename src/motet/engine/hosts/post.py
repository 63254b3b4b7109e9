"""The sockets of one process: one that everybody of the run may write to, and one to each other process.

They are ZeroMQ's, over TCP, with CURVE: whoever does not hold the run's keys is refused before a byte of his is read.
Any thread may send. One thread of the post's own receives, hands over what came, and sends again what nobody has
confirmed. So a message that is lost on the way comes late, and one that comes twice is told by its number. It waits for
messages and nothing else, since whoever is woken by one has to wait for Python's lock until it waits again; another
thread says who may come in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import zmq
from zmq.utils import z85

from motet.engine.hosts.frames import BadFrames, Header, read_header

TICK = 0.2
"""Seconds between two looks at what is not confirmed."""
LARGE = 2**16
"""Bytes from which on a frame is not copied to be sent: below, to keep an eye on it takes longer."""
ZAP = "inproc://zeromq.zap.01"
"""Where ZeroMQ asks whether a peer may come in."""


@dataclass(frozen=True)
class Keys:
    """What all processes of a run share, and nobody else knows."""

    public: bytes
    secret: bytes

    @classmethod
    def new(cls) -> Keys:
        return cls(*zmq.curve_keypair())


class End(Protocol):
    """An end of a channel in this process."""

    def came(self, header: Header, frames: Sequence[Any]) -> None:
        """Something came for it from the other end."""
        ...

    def remind(self, now: float) -> None:
        """Time has passed: send again what was perhaps lost."""
        ...


class Post:
    """Sends and receives for one process of one generation of a run."""

    def __init__(self, keys: Keys, interface: str = "127.0.0.1"):
        self.keys, self.generation = keys, 0
        self.ends: dict[int, End] = {}
        self.strays = self.refused = 0
        """Messages that were of no use, and peers that were not let in."""
        self.failure: BaseException | None = None
        self._context = zmq.Context()
        self._asked = self._context.socket(zmq.REP)
        self._asked.rcvtimeo = int(TICK * 1000)
        self._asked.bind(ZAP)
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.curve_server, self._inbox.zap_domain = True, b"motet"
        self._inbox.curve_publickey, self._inbox.curve_secretkey = keys.public, keys.secret
        self._inbox.rcvhwm, self._inbox.rcvtimeo = 0, int(TICK * 1000)
        self._inbox.bind(f"tcp://{interface}:*")
        self.address: str = self._inbox.getsockopt_string(zmq.LAST_ENDPOINT)
        self._peers: dict[int, tuple[zmq.Socket[Any], threading.Lock]] = {}
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._until_closed, args=(each,), name=f"motet {name}", daemon=True)
            for name, each in (("post", self._receive), ("post's door", self._answer))
        ]
        self._looked = 0.0
        """When it was last looked for what is not confirmed."""

    def connect(self, generation: int, peers: Mapping[int, str]) -> None:
        """Begin: here are the others' addresses, by host. All ends of this process are known by now."""
        self.generation = generation
        for host, address in peers.items():
            socket = self._context.socket(zmq.PUSH)
            socket.curve_serverkey = self.keys.public
            socket.curve_publickey, socket.curve_secretkey = self.keys.public, self.keys.secret
            socket.sndhwm = 0  # channels bound what is under way
            socket.connect(address)
            self._peers[host] = socket, threading.Lock()
        for thread in self._threads:
            thread.start()

    def send(self, host: int, header: Header, frames: Sequence[Any] = ()) -> None:
        """To the other end of a channel. Nobody may change the buffers any more."""
        socket, lock = self._peers[host]
        with lock:
            if not self._closing.is_set():
                more = zmq.SNDMORE if frames else 0
                socket.send(header.pack(), more)
                for number, frame in enumerate(frames, 1):
                    socket.send(frame, zmq.SNDMORE if number < len(frames) else 0, copy=len(frame) < LARGE)

    def close(self) -> None:
        """Let go of all sockets. What has not arrived yet is lost."""
        self._closing.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for socket, lock in self._peers.values():
            with lock:
                socket.close(0)
        self._inbox.close(0)
        self._asked.close(0)
        self._context.term()

    def _until_closed(self, work: Callable[[], None]) -> None:
        """Work again and again. It waits for a tick at most."""
        try:
            while not self._closing.is_set():
                with suppress(zmq.Again):
                    work()
        except BaseException as error:  # a defect: whoever waits is told by whoever looks here
            self.failure = error

    def _answer(self) -> None:
        """Say who may come in: whoever holds the run's own key."""
        version, request, _, _, _, mechanism, *credentials = self._asked.recv_multipart()
        known = mechanism == b"CURVE" and z85.encode(credentials[0]) == self.keys.public
        self.refused += not known
        self._asked.send_multipart([version, request, *((b"200", b"OK") if known else (b"400", b"No")), b"", b""])

    def _receive(self) -> None:
        """One message, and what is due by the clock."""
        if (now := time.monotonic()) - self._looked >= TICK:
            self._looked = now
            for end in list(self.ends.values()):
                end.remind(now)
        first, *frames = self._inbox.recv_multipart(copy=False)
        self.deliver(first.bytes, [frame.buffer for frame in frames])

    def deliver(self, first: bytes, frames: Sequence[Any]) -> None:
        """Hand over what came, if it is of this generation."""
        try:
            header = read_header(first)
            if header.generation != self.generation or header.channel not in self.ends:
                raise BadFrames("it is of another generation")
            self.ends[header.channel].came(header, frames)
        except BadFrames:
            self.strays += 1
