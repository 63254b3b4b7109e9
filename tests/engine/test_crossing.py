"""Channels between two real processes: the messages are those of one, each once, in order, and from friends alone."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import pytest
import zmq

from motet.engine.hosts import crossing
from motet.engine.hosts import post as post_module
from motet.engine.hosts.crossing import Incoming, Outgoing
from motet.engine.hosts.frames import BadFrames, Header, Leaf, from_frames, read_header, to_frames
from motet.engine.hosts.post import Keys, Post
from motet.engine.ports import Message
from motet.plan.route import Piece

LEAVES = (
    Leaf((3, 2), np.dtype(np.float32)),
    Leaf((), np.dtype(np.int32)),
    Leaf((2, 2), np.dtype(np.uint32), "threefry2x32"),
)
FIELDS: dict[str, Any] = {
    "name": "rollout", "source": "actors", "target": "learner", "pieces": (Piece("rollout", 0, None),), "capacity": 2,
    "latest": False,
}  # fmt: skip


def message(number: int) -> Message:
    payload = np.full((3, 2), number, np.float32), np.int32(number), jax.random.split(jax.random.key(number))
    return Message((number, 7), payload, number)


def until(ready: Callable[[], bool], seconds: float = 8.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.001)


@contextmanager
def posts(count: int = 2, kind: type[Post] = Post) -> Iterator[list[Post]]:
    keys = Keys.new()
    made = [kind(keys) for _ in range(count)]
    try:
        yield made
    finally:
        for post in made:
            post.close()


@contextmanager
def pair(kind: type[Post] = Post, **fields: Any) -> Iterator[tuple[Outgoing, Incoming]]:
    """The two ends of a channel, of two posts."""
    with posts(kind=kind) as (here, there):
        out = Outgoing(**{**FIELDS, **fields}, post=here, number=5, peer=1)
        into = Incoming(**{**FIELDS, **fields}, post=there, number=5, peer=0, leaves=LEAVES)
        here.ends[5], there.ends[5] = out, into
        here.connect(3, {1: there.address})
        there.connect(3, {0: here.address})
        yield out, into


def assert_same(one: Message, other: Message) -> None:
    assert (one.version, one.order) == (other.version, other.order)
    for left, right in zip(one.payload, other.payload, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        keys = jax.dtypes.issubdtype(left.dtype, jax.dtypes.prng_key)
        np.testing.assert_array_equal(*map(jax.random.key_data, (left, right)) if keys else (left, right))


def test_a_message_is_the_same_at_the_other_end() -> None:
    sent = message(4)
    header = Header("message", 3, 5, 1, sent.order, sent.version)
    frames = [bytes(frame) for frame in to_frames(sent.payload)]
    assert read_header(header.pack()) == header
    assert_same(from_frames(header, frames, LEAVES), sent)


@pytest.mark.parametrize("frame", [b"", b"motet", b"x" * 60, Header("message", 1, 1, 1, 1, (1,)).pack()[:-1]])
def test_what_is_no_header_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrames):
        read_header(frame)


def test_arrays_of_another_size_are_refused() -> None:
    with pytest.raises(BadFrames, match="bytes"):
        from_frames(Header("message", 0, 0, 1, 1), [b"1234"], (Leaf((2,), np.dtype(np.float32)),))


def _echo(keys: Keys, address: str, told: Any, count: int) -> None:
    """Another process: take from channel 0, and send the same back on channel 1."""
    post = Post(keys)
    into = Incoming(**FIELDS, post=post, number=0, peer=0, leaves=LEAVES)
    out = Outgoing(**FIELDS, post=post, number=1, peer=0)
    post.ends.update({0: into, 1: out})
    post.connect(3, {0: address})
    told.send(post.address)
    for _ in range(count):
        until(into.has_message)
        until(out.has_room)
        out.put(into.take(), counted=True)
    told.recv()
    post.close()


def test_messages_go_to_another_process_and_back() -> None:
    count, keys = 20, Keys.new()
    post = Post(keys)
    out = Outgoing(**FIELDS, post=post, number=0, peer=1)
    back = Incoming(**FIELDS, post=post, number=1, peer=1, leaves=LEAVES)
    post.ends.update({0: out, 1: back})
    told, child = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_echo, args=(keys, post.address, child, count))
    process.start()
    try:
        assert told.poll(60)
        post.connect(3, {1: told.recv()})
        for number in range(count):
            until(out.has_room)
            out.put(message(number), counted=True)
            until(back.has_message)
            assert_same(back.take(), message(number))
        assert (out.messages, out.bytes) == (count, count * (24 + 4 + 16))
        told.send("done")
        process.join(20)
        assert process.exitcode == 0
    finally:
        process.kill()
        post.close()


def test_there_is_room_for_as_many_as_the_channel_holds() -> None:
    with pair() as (out, into):
        out.put(message(0), counted=False)
        assert out.has_room()
        out.put(message(1), counted=False)
        assert not out.has_room()
        until(lambda: len(into.queue) == 2)
        time.sleep(0.05)
        assert not out.has_room()  # it came, but nobody has taken it
        into.take()
        until(out.has_room)


def test_of_the_latest_values_the_newest_is_taken() -> None:
    with pair(latest=True) as (out, into):
        for number in range(10):
            assert out.has_room()
            out.put(message(number), counted=True)
        until(lambda: into.received == 10)
        assert_same(into.take(), message(9))
        assert not into.has_message()


def test_a_cut_is_sent_again_to_whoever_reads_it() -> None:
    with pair() as (out, into):
        out.recent = type(out.recent)(maxlen=2)
        out.restore([message(0), message(1)])
        until(lambda: len(into.queue) == 2)
        assert [each.order for each in out.recent] == [0, 1] and out.messages == 0
        assert_same(into.take(), message(0))


class Losing(Post):
    """A network that drops half of all messages, receipts included."""

    chance = random.Random(0)

    def deliver(self, first: bytes, frames: Any) -> None:
        if Losing.chance.random() < 0.5:
            super().deliver(first, frames)


def test_what_a_network_drops_comes_later_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossing, "AGAIN", 0.02)
    monkeypatch.setattr(post_module, "TICK", 0.02)
    with pair(Losing, capacity=3) as (out, into):
        taken: list[int] = []

        def read() -> None:
            while len(taken) < 12:
                until(into.has_message)
                taken.append(into.take().order)

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(12):
            until(out.has_room)
            out.put(message(number), counted=True)
        reader.join(10)
        assert taken == list(range(12))


class Choosing(Post):
    """A network that drops what it is told to."""

    drops: Callable[[Header], bool] = staticmethod(lambda header: False)

    def deliver(self, first: bytes, frames: Any) -> None:
        if not Choosing.drops(read_header(first)):
            super().deliver(first, frames)


def test_a_message_sent_again_does_not_take_the_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is sent again before the second is: then only the second is late, which stands behind it."""
    monkeypatch.setattr(crossing, "AGAIN", 0.5)
    with pair(Choosing) as (out, into):
        monkeypatch.setattr(Choosing, "drops", staticmethod(lambda header: header.kind == "message"))
        out.put(message(0), counted=True)
        out.put(message(1), counted=True)
        first, second = out.unconfirmed
        now = time.monotonic()
        out.unconfirmed[0], out.unconfirmed[1] = (*first[:2], now), (*second[:2], now - 0.6)
        out.remind(now)
        assert [number for number, _, _ in out.unconfirmed] == [1, 2]
        monkeypatch.setattr(Choosing, "drops", staticmethod(lambda header: False))
        until(lambda: len(into.queue) == 2)
        assert [into.take().order, into.take().order] == [0, 1]


def test_a_lost_word_that_something_was_taken_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossing, "AGAIN", 0.02)
    monkeypatch.setattr(post_module, "TICK", 0.02)
    with pair(Choosing, capacity=1) as (out, into):
        out.put(message(0), counted=True)
        until(into.has_message)
        until(lambda: not out.unconfirmed)  # it was sent twice, and so was said to have come
        monkeypatch.setattr(Choosing, "drops", staticmethod(lambda header: header.kind == "receipt"))
        into.take()
        time.sleep(0.1)
        assert not out.has_room()
        monkeypatch.setattr(Choosing, "drops", staticmethod(lambda header: False))
        until(out.has_room)


def test_a_message_of_another_generation_is_dropped() -> None:
    with pair() as (out, into):
        out.post.generation = 2  # a process that has not heard that there was a failure
        out.put(message(0), counted=True)
        until(lambda: into.post.strays == 1)
        assert not into.has_message()


def _stranger(address: str, server: bytes | None, keys: tuple[bytes, bytes] | None) -> None:
    """Whoever can reach the socket and knows how messages look."""
    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    if server is not None and keys is not None:
        socket.curve_serverkey = server
        socket.curve_publickey, socket.curve_secretkey = keys
    socket.connect(address)
    header = Header("message", 3, 5, 1, 0, (0, 7))
    socket.send_multipart([header.pack(), *to_frames(message(0).payload)])
    time.sleep(0.4)
    socket.close(0)
    context.term()


@pytest.mark.parametrize("who", ["without a key", "with a key of his own", "with a wrong key of the run"])
def test_a_strangers_message_is_refused(who: str) -> None:
    with pair() as (out, into):
        own = zmq.curve_keypair()
        server = {"without a key": None, "with a key of his own": into.post.keys.public}.get(who, own[0])
        _stranger(into.post.address, server, own if who != "without a key" else None)
        assert not into.has_message() and into.post.strays == 0
        if who == "with a key of his own":
            assert into.post.refused >= 1
        out.put(message(1), counted=True)
        until(into.has_message)
        assert_same(into.take(), message(1))
