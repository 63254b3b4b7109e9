"""Which replica sends what to which: gather, scatter, broadcast and reduction all follow from a variable's leaves."""

from __future__ import annotations

from dataclasses import dataclass

from motet.flow.graph import Var


@dataclass(frozen=True)
class Piece:
    """One leaf of one message: the sender's rows start:stop of the environment axis, or the leaf as it is."""

    var: str
    leaf: int
    axis: int | None
    start: int = 0
    stop: int = 0


def pieces(vars: tuple[Var, ...], sender: int, senders: int, receiver: int, receivers: int) -> tuple[Piece, ...]:
    """What `sender` of `senders` sends to `receiver` of `receivers`; empty if nothing.

    Leaves with an environment axis go where their rows belong; parts of a result over the batch go to everyone, who
    combines them; what is the same everywhere comes from one sender.
    """
    found = []
    for var in vars:
        for leaf, (aval, axis) in enumerate(zip(var.avals, var.axes, strict=True)):
            if axis is None:
                if var.combine[leaf] or sender == receiver * senders // receivers:
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
