"""Channels between two hosts: to a worker they are as those inside of a process.

The sending end knows how many of its messages have been taken, and so whether there is room. The receiving end confirms
what came, takes each message once, in order, and tells when one is taken.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from motet.engine.hosts.frames import BadFrames, Header, Leaf, from_frames, schema, to_frames
from motet.engine.hosts.post import Post
from motet.engine.ports import Channel, Message
from motet.flow.graph import Graph
from motet.flow.values import on_host
from motet.plan.hosts import hosts_of, members
from motet.plan.plan import Plan
from motet.plan.protocol import Wire

AGAIN = 2.0
"""Seconds after which a message that was not confirmed is sent again."""


@dataclass(eq=False, kw_only=True)
class Outgoing(Channel):
    """The sending end."""

    crosses: ClassVar[bool] = True
    post: Post
    number: int
    """The channel's number among all of the run."""
    peer: int
    """The host that it leads to."""
    sent: int = 0
    received: int = 0
    taken: int = 0
    unconfirmed: deque[tuple[int, Message, float]] = field(default_factory=deque)
    """By number, with the time of its last sending."""
    asked: float = 0.0
    """When the other end was last asked what has been taken."""

    def has_room(self) -> bool:
        return self.latest or self.sent - self.taken < self.capacity

    def put(self, message: Message, counted: bool) -> None:
        message = message._replace(payload=tuple(map(on_host, message.payload)))
        with self.changed:
            self.recent.append(message)
            self.messages += counted
            self.bytes += sum(leaf.nbytes for leaf in message.payload) if counted else 0
            self._first_sending(message)

    def restore(self, messages: Iterable[Message]) -> None:
        with self.changed:
            for message in messages:
                self.recent.append(message)
                self._first_sending(message)

    def _first_sending(self, message: Message) -> None:
        """The caller holds `changed`."""
        self.sent += 1
        if self.latest:
            self.unconfirmed.clear()
        self.unconfirmed.append((self.sent, message, time.monotonic()))
        self._send(self.sent, message)

    def _send(self, number: int, message: Message) -> None:
        header = Header("message", self.post.generation, self.number, number, message.order, message.version)
        self.post.send(self.peer, header, to_frames(message.payload))

    def came(self, header: Header, frames: Sequence[Any]) -> None:
        """A receipt. One that comes twice, or late, says nothing new."""
        if header.kind != "receipt":
            raise BadFrames("a receipt was due")
        with self.changed:
            self.received, self.taken = max(self.received, header.number), max(self.taken, header.tally)
            while self.unconfirmed and self.unconfirmed[0][0] <= self.received:
                self.unconfirmed.popleft()
            self._tell()

    def remind(self, now: float) -> None:
        with self.changed:
            for place, (number, message, sent) in enumerate(self.unconfirmed):
                if now - sent > AGAIN:  # one that was sent again may stand before one that was sent earlier
                    self.unconfirmed[place] = number, message, now
                    self._send(number, message)
            if not self.has_room() and not self.unconfirmed and now - self.asked > AGAIN:
                # All has come; that some of it was taken may have been said, and lost.
                self.asked = now
                self.post.send(self.peer, Header("question", self.post.generation, self.number, self.sent, self.taken))


@dataclass(eq=False, kw_only=True)
class Incoming(Channel):
    """The receiving end."""

    post: Post
    number: int
    peer: int
    leaves: tuple[Leaf, ...]
    received: int = 0
    taken: int = 0

    def came(self, header: Header, frames: Sequence[Any]) -> None:
        """A message: the next one, or one that must wait for others, or one that came before. Or a question."""
        if header.kind == "receipt":
            raise BadFrames("a message was due")
        with self.changed:
            if header.kind == "question":
                self._confirm()
                return
            is_next = header.number > self.received if self.latest else header.number == self.received + 1
            if not is_next:
                self._confirm()
                return
            message = from_frames(header, frames, self.leaves)
            if self.latest:
                self.queue.clear()
            self.queue.append(message)
            self.received = header.number
            if self.latest:
                self._confirm()
            self._tell()

    def take(self) -> Message:
        with self.changed:
            message = self.queue.popleft()
            self.taken += 1
            self._confirm()
            self._tell()
        return message

    def _confirm(self) -> None:
        header = Header("receipt", self.post.generation, self.number, self.received, self.taken)
        self.post.send(self.peer, header)

    def remind(self, now: float) -> None:
        """Whoever sends asks by sending again."""


@dataclass
class Crossings:
    """Makes the channels of one host: those inside of it, and its ends of those that lead to others."""

    graph: Graph
    plan: Plan
    host: int
    post: Post

    def __call__(self, number: int, wire: Wire, sender: int, receiver: int, fields: dict[str, Any]) -> Channel | None:
        source, target = hosts_of(self.plan, wire.source)[sender], hosts_of(self.plan, wire.target)[receiver]
        if self.host not in (source, target):
            return None
        if source == target:
            return Channel(**fields)
        end: Outgoing | Incoming
        if source == self.host:
            end = Outgoing(**fields, post=self.post, number=number, peer=target)
        else:
            leaves = schema(self.graph, members(self.plan, wire.source), fields["pieces"])
            end = Incoming(**fields, post=self.post, number=number, peer=source, leaves=leaves)
        self.post.ends[number] = end
        return end
