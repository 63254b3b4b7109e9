"""A consistent cut of a run: every worker's state at its own boundary between two iterations, and of every wire the
messages that were sent before it and are read after it, which the sender still knows.

No worker waits for another: each hands over its share when it comes by. What is here is a copy; the run goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.engine.perform import Performer
from motet.engine.ports import Channel, Message
from motet.engine.worker import WorkerState
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.flow.values import on_host
from motet.plan.protocol import Wire
from motet.plan.route import Piece

if TYPE_CHECKING:
    from motet.engine.assemble import Assembly


@dataclass(frozen=True)
class WorkerShare:
    """What one worker holds at a cut, in the host's memory."""

    worker: str
    fragment: str
    index: int
    variables: Mapping[str, tuple[Any, ...]]
    messages: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """By channel, what it has sent that is still to be read."""
    replay: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What its replay outside of XLA remembers."""
    sent: int = 0
    """How many messages it has sent."""
    traffic: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By channel, how many messages and bytes it has sent in iterations."""
    ages: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By wire, how old what it has read was."""


@dataclass(frozen=True)
class RunCut:
    """All of a run between two iterations."""

    iteration: int
    shares: Mapping[str, WorkerShare]
    """By worker."""
    watched: Mapping[str, Any] = field(default_factory=dict)
    """What whoever watches the run knew at this iteration, as JSON."""


def take(performer: Performer) -> WorkerShare:
    """A copy of what a worker holds. The worker stands between two iterations, and so does whoever calls."""
    worker, ports, store = performer.worker, performer.ports, performer.replay.store
    outgoing = dict(_outgoing(performer))
    return WorkerShare(
        worker.name,
        worker.fragment,
        worker.index,
        {name: tuple(map(on_host, leaves)) for name, leaves in worker.state().variables.items()},
        {name: tuple(map(_kept, each.recent)) for name, each in outgoing.items() if each.recent},
        {} if store is None else store.state(),
        ports.sent,
        {name: (each.messages, each.bytes) for name, each in outgoing.items()},
        {wire_name(wire): dict(ages) for wire, ages in ports.ages.items()},
    )


def load(assembly: Assembly, cut: RunCut) -> None:
    """Put the workers of a run that has not begun where those of the same plan were."""
    workers = {each.worker.name: each for each in assembly.performers}
    if workers.keys() != cut.shares.keys():
        raise BadOption(f"It is of the workers {', '.join(cut.shares)}, but this plan has {', '.join(workers)}.")
    for name, performer in workers.items():
        _check_fits(performer, cut.shares[name], cut.iteration)
    for name, performer in workers.items():
        _load(performer, cut.shares[name], cut.iteration)


def _load(performer: Performer, share: WorkerShare, iteration: int) -> None:
    """Put a worker that has not begun where another one of the same schedule was."""
    place, graph, worker = performer.home.place, performer.home.lowering.graph, performer.worker
    variables = {
        name: tuple(map(place.put, leaves, graph.variables[name].axes)) for name, leaves in share.variables.items()
    }
    worker.load(WorkerState(iteration, variables))
    performer.ports.sent = share.sent
    for name, channel in _outgoing(performer):
        channel.restore(share.messages.get(name, ()))
        channel.messages, channel.bytes = share.traffic.get(name, (0, 0))
    for wire in performer.ports.incoming:
        if found := share.ages.get(wire_name(wire)):
            performer.ports.ages[wire] = Counter(dict(found))
    performer.replay.resume(worker.schedule, share.replay)


def _check_fits(performer: Performer, share: WorkerShare, iteration: int) -> None:
    """Raise where a share does not belong to this worker: another type, or a part that is missing."""
    graph, members, worker = performer.home.lowering.graph, performer.home.members, performer.worker
    for name in worker.schedule.state:
        outside = name == graph.roles.replay and performer.replay.where
        wanted = () if outside else graph.variables[name].local(members)
        found = share.variables.get(name)
        if found is None:
            raise BadOption(f"It lacks {name!r}, which {worker.name} needs to go on.")
        types = [(leaf.shape, leaf.dtype) for leaf in found]
        if types != [(aval.shape, aval.dtype) for aval in wanted]:
            raise BadOption(f"Its {name!r} of {worker.name} should be {wanted}, but is {types}.")
    for name, channel in _outgoing(performer):
        found = share.messages.get(name, ())
        if len(found) < min(iteration, channel.recent.maxlen or 0):
            raise BadOption(
                f"Of {channel.name}, {channel.recent.maxlen} messages should be under way, not {len(found)}."
            )
        for message in found:
            wanted = [_aval(graph, members, piece) for piece in channel.pieces]
            types = [(leaf.shape, leaf.dtype) for leaf in message.payload]
            if types != wanted:
                raise BadOption(f"A message of it, {channel.name}, should be {wanted}, but is {types}.")


def wire_name(wire: Wire) -> str:
    """The name of a wire among all of a run."""
    return f"{wire.name}, after {wire.child}"


def _outgoing(performer: Performer) -> list[tuple[str, Channel]]:
    return [
        (f"{wire_name(wire)}, {channel.name}", channel)
        for wire, channels in performer.ports.outgoing.items()
        for channel in channels
    ]


def _aval(graph: Graph, members: int, piece: Piece) -> tuple[tuple[int, ...], Any]:
    """Shape and type of a piece of a variable that `members` hold together."""
    aval = graph.variables[piece.var].local(members)[piece.leaf]
    if piece.axis is None:
        return aval.shape, aval.dtype
    return (*aval.shape[: piece.axis], piece.stop - piece.start, *aval.shape[piece.axis + 1 :]), aval.dtype


def _kept(message: Message) -> Message:
    return message._replace(payload=tuple(map(on_host, message.payload)), arrives=0.0)
