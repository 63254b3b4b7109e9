"""Which member sends what to which: gather, scatter, broadcast and reduction all follow from a variable's leaves."""

from __future__ import annotations

from dataclasses import dataclass

from motet.flow.graph import Graph, Var
from motet.plan.hosts import hosts_of, span
from motet.plan.plan import Plan
from motet.plan.protocol import Wire


@dataclass(frozen=True)
class Piece:
    """One leaf of one message: the sender's rows start:stop of the environment axis, or the leaf as it is."""

    var: str
    leaf: int
    axis: int | None
    start: int = 0
    stop: int = 0


def routes(graph: Graph, plan: Plan, wire: Wire) -> dict[tuple[int, int], tuple[Piece, ...]]:
    """Sender and receiver of each message of one round -> what it carries."""
    vars = tuple(graph.variables[name] for name in wire.vars)
    sources, targets = hosts_of(plan, wire.source), hosts_of(plan, wire.target)
    joined = span(plan, wire.source) > 1
    found = {}
    for sender in range(len(sources)):
        for receiver, host in enumerate(targets):
            near = nearest(sources, receiver * len(sources) // len(targets), host)
            each = pieces(vars, sender, len(sources), receiver, len(targets), near, joined)
            if each:
                found[sender, receiver] = each
    return found


def nearest(sources: tuple[int, ...], usual: int, host: int) -> int:
    """Of the members on the hosts `sources`, who brings a host what all of them have: one on the same host, if there is
    one, else the usual one."""
    return usual if sources[usual] == host or host not in sources else sources.index(host)


def pieces(
    vars: tuple[Var, ...],
    sender: int,
    senders: int,
    receiver: int,
    receivers: int,
    near: int | None = None,
    joined: bool = False,
) -> tuple[Piece, ...]:
    """What `sender` of `senders` sends to `receiver` of `receivers`; empty if nothing.

    Leaves with an environment axis go where their rows belong; parts of a result over the batch go to everyone, who
    combines them; what is the same everywhere comes from one sender, `near`. Senders that are `joined` in one program
    have combined their parts already.
    """
    found = []
    near = receiver * senders // receivers if near is None else near
    for var in vars:
        for leaf, (aval, axis) in enumerate(zip(var.avals, var.axes, strict=True)):
            if axis is None:
                if sender == near or (var.combine[leaf] and not joined):
                    found.append(Piece(var.name, leaf, None))
                continue
            size = aval.shape[axis]
            low = max(sender * size // senders, receiver * size // receivers)
            high = min((sender + 1) * size // senders, (receiver + 1) * size // receivers)
            if low < high:
                first = sender * size // senders
                found.append(Piece(var.name, leaf, axis, low - first, high - first))
    return tuple(found)


def nbytes(vars: tuple[Var, ...], found: tuple[Piece, ...]) -> int:
    """The size of one message."""
    table = {var.name: var for var in vars}
    total = 0
    for piece in found:
        aval = table[piece.var].avals[piece.leaf]
        size = aval.dtype.itemsize
        for axis, length in enumerate(aval.shape):
            size *= piece.stop - piece.start if axis == piece.axis else length
        total += size
    return total
