"""Links at run time: bounded channels whose messages carry the round they were made in."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.place import Place
from motet.engine.supervise import Supervisor, Wait
from motet.errors import MotetError
from motet.flow.combine import Combine, join
from motet.flow.graph import Graph, Var
from motet.plan.plan import Plan
from motet.plan.project import Wire
from motet.plan.route import Piece, pieces

Version = tuple[int, ...]
"""The rounds of the loops around a sending, outermost first."""


@dataclass(frozen=True)
class Message:
    version: Version
    payload: tuple[Any, ...]
    arrives: float = 0.0
    """When it may be used, by the monotonic clock; 0: at once."""


@dataclass
class Channel:
    """From one replica to another. With `latest`, a new message replaces one that nobody has taken."""

    name: str
    source: str
    target: str
    pieces: tuple[Piece, ...]
    capacity: int
    latest: bool
    latency: float = 0.0
    queue: deque[Message] = field(default_factory=deque)
    messages: int = 0
    bytes: int = 0

    def has_room(self) -> bool:
        return self.latest or len(self.queue) < self.capacity

    def has_message(self) -> bool:
        return bool(self.queue)

    def put(self, message: Message, counted: bool) -> None:
        if self.latest:
            self.queue.clear()
        self.queue.append(message)
        self.messages += counted
        self.bytes += sum(leaf.nbytes for leaf in message.payload) if counted else 0


@dataclass
class Seen:
    """How old the values were that one wire delivered, in rounds of its loop."""

    lags: dict[int, int] = field(default_factory=dict)

    def add(self, lag: int) -> None:
        self.lags[lag] = self.lags.get(lag, 0) + 1


class Wiring:
    """Every channel of a run."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        wires: Sequence[Wire],
        supervisor: Supervisor,
        latency: Mapping[str, float] | None = None,
    ):
        self.graph, self.plan, self.supervisor = graph, plan, supervisor
        self.latency = latency or {}
        self.seen = {wire: Seen() for wire in wires}
        numbers = [link.lag for link in plan.links.values() if isinstance(link.lag, int)]
        # k + 1 messages of a link with lag k are in flight between two rounds, and so are those that answer them.
        capacity = max([0, *numbers]) + 1
        self.channels: dict[tuple[Wire, int, int], Channel] = {}
        for wire in wires:
            senders, receivers = self._count(wire.source), self._count(wire.target)
            for sender in range(senders):
                for receiver in range(receivers):
                    found = pieces(self.vars(wire), sender, senders, receiver, receivers)
                    if found:
                        name = f"{wire.name} ({sender} -> {receiver})"
                        self.channels[wire, sender, receiver] = Channel(
                            name,
                            wire.source,
                            wire.target,
                            found,
                            capacity,
                            wire.lag == "latest",
                            self.latency.get(wire.link, 0.0),
                        )

    def vars(self, wire: Wire) -> tuple[Var, ...]:
        return tuple(self.graph.variables[name] for name in wire.vars)

    def outgoing(self, wire: Wire, sender: int) -> list[Channel]:
        receivers = range(self._count(wire.target))
        return [self.channels[wire, sender, r] for r in receivers if (wire, sender, r) in self.channels]

    def incoming(self, wire: Wire, receiver: int) -> list[Channel]:
        senders = range(self._count(wire.source))
        return [self.channels[wire, s, receiver] for s in senders if (wire, s, receiver) in self.channels]

    def room(self, channel: Channel) -> Wait:
        return Wait(channel.has_room, f"room in {channel.name}", channel.target)

    def message(self, channel: Channel) -> Wait:
        return Wait(channel.has_message, channel.name, channel.source)

    def put(self, channel: Channel, version: Version, store: Mapping[str, tuple[Any, ...]], counted: bool) -> None:
        payload = tuple(_cut(store[piece.var][piece.leaf], piece) for piece in channel.pieces)
        with self.supervisor.changed:
            arrives = time.monotonic() + channel.latency if channel.latency else 0.0
            channel.put(Message(version, payload, arrives), counted)
            self.supervisor.notify()

    def take(self, channel: Channel) -> Message:
        with self.supervisor.changed:
            message = channel.queue.popleft()
            self.supervisor.notify()
        if message.arrives:
            time.sleep(max(0.0, message.arrives - time.monotonic()))
        return message

    def join(self, wire: Wire, place: Place, received: Sequence[tuple[Channel, Message]]) -> dict[str, tuple[Any, ...]]:
        """What all senders sent -> the receiver's variables, on its devices and ready to be used."""
        values: dict[str, tuple[Any, ...]] = {}
        for var in self.vars(wire):
            leaves = []
            for leaf, axis in enumerate(var.axes):
                parts = [
                    value
                    for channel, message in received
                    for piece, value in zip(channel.pieces, message.payload, strict=True)
                    if (piece.var, piece.leaf) == (var.name, leaf)
                ]
                if len(parts) > 1:
                    parts = [_join([place.put(part) for part in parts], axis, var.combine[leaf])]
                leaves.append(place.put(parts[0], axis))
            values[var.name] = tuple(leaves)
        # Waiting here, not inside a compiled call, keeps a late value from stalling other threads' dispatch.
        return jax.block_until_ready(values)

    def check(self, wire: Wire, message: Message, expected: Version) -> None:
        if message.version != expected:
            raise MotetError(f"{wire.name} delivered round {message.version} where round {expected} was due.")

    def _count(self, fragment: str) -> int:
        return self.plan.fragments[fragment].replicas


def _cut(leaf: Any, piece: Piece) -> Any:
    if piece.axis is None or (piece.start, piece.stop) == (0, leaf.shape[piece.axis]):
        return leaf
    if isinstance(leaf, np.ndarray):
        return leaf[(slice(None),) * piece.axis + (slice(piece.start, piece.stop),)]
    return jax.lax.slice_in_dim(leaf, piece.start, piece.stop, axis=piece.axis)


def _join(parts: Sequence[Any], axis: int | None, how: Combine | None) -> Any:
    if axis is None:
        assert how is not None
        return join(how, parts)
    return jnp.concatenate(parts, axis)
