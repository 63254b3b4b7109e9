"""Outbox and inbox of a worker: bounded channels whose messages carry the round they were made in.

A channel leads from one replica to another, inside this process (`hosts/crossing.py` has those between two). Whoever
waits for one waits at that channel alone; a driver that waits for several at once is told by the channel's `listeners`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax

from motet.engine.join import cut_piece, join
from motet.engine.place import Place
from motet.engine.variables import Variables
from motet.errors import MotetError
from motet.flow.graph import Graph
from motet.plan import protocol
from motet.plan.plan import Plan
from motet.plan.protocol import Version, Wire
from motet.plan.route import Piece, routes


class Message(NamedTuple):
    version: Version
    payload: tuple[Any, ...]
    order: int
    """Counts what its sender has sent: among the latest values, the highest is the newest."""
    arrives: float = 0.0
    """When it may be used, by the monotonic clock; 0: at once."""


@dataclass(eq=False)
class Channel:
    """From one replica to another. One for the latest value replaces a message that nobody has taken."""

    crosses: ClassVar[bool] = False
    """Whether what is sent here goes to another host."""

    name: str
    source: str
    target: str
    pieces: tuple[Piece, ...]
    capacity: int
    latest: bool
    latency: float = 0.0
    queue: deque[Message] = field(default_factory=deque)
    recent: deque[Message] = field(default_factory=lambda: deque(maxlen=0))
    """The last messages that were sent: between two iterations of the sender, those that its reader has not read in as
    many iterations (see `protocol.unread`)."""
    messages: int = 0
    bytes: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def has_room(self) -> bool:
        return self.latest or len(self.queue) < self.capacity

    def has_message(self) -> bool:
        return bool(self.queue)

    def put(self, message: Message, counted: bool) -> None:
        """Add a message; the caller knows that there is room."""
        with self.changed:
            if self.latest:
                self.queue.clear()
            self.queue.append(message)
            self.recent.append(message)
            self.messages += counted
            self.bytes += sum(leaf.nbytes for leaf in message.payload) if counted else 0
            self._tell()

    def take(self) -> Message:
        """The oldest message; the caller knows that there is one."""
        with self.changed:
            message = self.queue.popleft()
            self._tell()
        if message.arrives:
            time.sleep(max(0.0, message.arrives - time.monotonic()))
        return message

    def restore(self, messages: Iterable[Message]) -> None:
        """Before a run goes on from a cut: what was sent before it and is read after it."""
        self.queue.extend(messages)
        self.recent.extend(self.queue)

    def _tell(self) -> None:
        """The caller holds `changed`."""
        self.changed.notify_all()
        for listener in self.listeners:
            listener()


@dataclass
class Ports:
    """What one worker sends and receives."""

    graph: Graph
    place: Place
    outgoing: Mapping[Wire, list[Channel]]
    incoming: Mapping[Wire, list[Channel]]
    ages: dict[Wire, Counter[int]] = field(default_factory=dict)
    """How old the values were that each wire delivered, in rounds of its loop."""
    sent: int = 0
    held: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of each variable that is read at its latest, and each fragment that sends it: which sending is held."""

    def put(self, channel: Channel, version: Version, values: Variables, counted: bool) -> None:
        payload = tuple(cut_piece(values[piece.var][piece.leaf], piece) for piece in channel.pieces)
        arrives = time.monotonic() + channel.latency if channel.latency else 0.0
        self.sent += 1
        channel.put(Message(version, payload, self.sent, arrives), counted)

    def arrived(
        self, wire: Wire, path: Version, received: Sequence[Message], counted: bool, due: Version | None = None
    ) -> Variables:
        """What all senders sent, in the round that is `due` -> the receiver's variables, on its devices and ready to be
        used."""
        versions = [message.version for message in received]
        if due is not None and any(version != due for version in versions):
            wrong = next(version for version in versions if version != due)
            raise MotetError(f"{wire.name} delivered round {wrong} where round {due} was due.")
        if counted and (ages := protocol.ages(wire, path, versions)):
            self.ages.setdefault(wire, Counter()).update(ages)
        parts = [
            each
            for channel, message in zip(self.incoming.get(wire, ()), received, strict=True)
            for each in zip(channel.pieces, message.payload, strict=True)
        ]
        values = join([self.graph.variables[name] for name in wire.vars], self.place, parts)
        # Waiting here, not inside a compiled call, keeps a late value from stalling other threads' dispatch.
        return jax.block_until_ready(values)

    def newest(self, wire: Wire, path: Version, counted: bool) -> Variables:
        """Of the latest values of a link, what is newer than what is held. Wires in several loops bring the same
        variables, so all of them are looked at, wherever in the loops one is asked for."""
        brought: dict[str, tuple[int, Wire, Any]] = {}
        for other, channels in self.incoming.items():
            alike = (other.link, other.source, other.lag) == (wire.link, wire.source, wire.lag)
            if not alike or not all(channel.has_message() for channel in channels):
                continue
            received = [channel.take() for channel in channels]
            order = min(message.order for message in received)
            for name in other.vars:
                if order > max(self.held.get((name, other.source), 0), brought.get(name, (0,))[0]):
                    brought[name] = order, other, received
        found: Variables = {}
        for order, other, received in {id(each[2]): each for each in brought.values()}.values():
            values = self.arrived(other, path, received, counted)
            found |= {name: values[name] for name, (newest, _, _) in brought.items() if newest == order}
        self.held |= {(name, wire.source): order for name, (order, _, _) in brought.items()}
        return found


Channels = Mapping[tuple[Wire, int, int], Channel]
"""By wire, sender and receiver."""


Make = Callable[[int, Wire, int, int, dict[str, Any]], Channel | None]
"""Makes a channel of its number among all of a run, wire, sender, receiver and fields; None: no end of it is here."""


def channels(
    graph: Graph,
    plan: Plan,
    wires: Iterable[Wire],
    latency: Mapping[str, float],
    make: Make = lambda number, wire, sender, receiver, fields: Channel(**fields),
) -> Channels:
    """Every channel of a run that has an end here."""
    made: dict[tuple[Wire, int, int], Channel] = {}
    number = 0
    for wire, capacity in protocol.capacities(wires).items():
        for (sender, receiver), found in routes(graph, plan, wire).items():
            fields = {
                "name": f"{wire.name} ({sender} -> {receiver})",
                "source": wire.source,
                "target": wire.target,
                "pieces": found,
                "capacity": capacity,
                "latest": wire.lag == "latest",
                "latency": latency.get(wire.link, 0.0),
                "recent": deque(maxlen=protocol.unread(wire)),
            }
            channel = make(number, wire, sender, receiver, fields)
            number += 1
            if channel is not None:
                made[wire, sender, receiver] = channel
    return made


def ports_of(graph: Graph, place: Place, fragment: str, replica: int, made: Channels) -> Ports:
    """The ends of the channels that one replica has."""
    outgoing: dict[Wire, list[Channel]] = {}
    incoming: dict[Wire, list[Channel]] = {}
    for (wire, sender, receiver), channel in made.items():
        if (wire.source, sender) == (fragment, replica):
            outgoing.setdefault(wire, []).append(channel)
        if (wire.target, receiver) == (fragment, replica):
            incoming.setdefault(wire, []).append(channel)
    return Ports(graph, place, outgoing, incoming)
