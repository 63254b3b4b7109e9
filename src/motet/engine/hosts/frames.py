"""A message between two processes as bytes: a header, then the raw buffer of each array.

What the arrays are is known from the graph, on both sides, and so is not said. Every header carries the generation of
the run that it belongs to, and a number that counts the messages of its channel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.ports import Message
from motet.errors import MotetError
from motet.flow.graph import Graph
from motet.flow.values import is_key
from motet.plan.route import Piece

MARK = b"motet\x01"
HEADER = struct.Struct("!6sBIIQQB")
"""A mark, what it is, the generation, the channel, two numbers, and how many rounds follow."""
ROUND = struct.Struct("!Q")
KINDS = ("message", "receipt", "question")


class BadFrames(MotetError, ValueError):
    """Bytes that are no message of this run."""


class Header(NamedTuple):
    """What comes before the arrays."""

    kind: Literal["message", "receipt", "question"]
    generation: int
    channel: int
    number: int
    """Of a message: its own. Of a receipt: that of the last message that came. Of a question: how many were sent."""
    tally: int
    """Of a message: how many messages its sender had sent. Of the others: how many have been taken, as far as known."""
    version: tuple[int, ...] = ()

    def pack(self) -> bytes:
        first = HEADER.pack(MARK, KINDS.index(self.kind), *self[1:5], len(self.version))
        return first + b"".join(map(ROUND.pack, self.version))


def read_header(frame: bytes) -> Header:
    """The header of what came, or `BadFrames`."""
    if len(frame) < HEADER.size:
        raise BadFrames("the header is too short")
    mark, kind, generation, channel, number, tally, depth = HEADER.unpack_from(frame)
    if mark != MARK or kind >= len(KINDS) or len(frame) != HEADER.size + depth * ROUND.size:
        raise BadFrames("the header is not one of motet's")
    version = tuple(ROUND.unpack_from(frame, HEADER.size + place * ROUND.size)[0] for place in range(depth))
    return Header(KINDS[kind], generation, channel, number, tally, version)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Leaf:
    """The type of one array of a channel's messages, as it travels."""

    shape: tuple[int, ...]
    dtype: np.dtype
    keys: str = ""
    """If it holds random keys, which NumPy does not know: of which kind."""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def schema(graph: Graph, senders: int, pieces: Sequence[Piece]) -> tuple[Leaf, ...]:
    """The arrays that one of `senders` replicas sends in each message of a channel."""
    return tuple(_leaf(graph, senders, piece) for piece in pieces)


def _leaf(graph: Graph, senders: int, piece: Piece) -> Leaf:
    aval = graph.variables[piece.var].local(senders)[piece.leaf]
    shape = aval.shape
    if piece.axis is not None:
        shape = (*shape[: piece.axis], piece.stop - piece.start, *shape[piece.axis + 1 :])
    if not is_key(aval):
        return Leaf(shape, np.dtype(aval.dtype))
    data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(shape, aval.dtype))
    return Leaf(data.shape, np.dtype(data.dtype), str(jax.random.key_impl(aval.dtype)))


def to_frames(leaves: Sequence[Any]) -> list[Any]:
    """The arrays of a message as buffers."""
    return [_plain(leaf).data.cast("B") if leaf.size else b"" for leaf in leaves]


def _plain(leaf: Any) -> np.ndarray:
    return np.ascontiguousarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def from_frames(header: Header, frames: Sequence[Any], leaves: Sequence[Leaf]) -> Message:
    """The message that came, or `BadFrames`. Its arrays lie where they came, and cannot be changed."""
    sizes = [len(frame) for frame in frames]
    if sizes != [leaf.nbytes for leaf in leaves]:
        raise BadFrames(f"its arrays have {sizes} bytes and not {[leaf.nbytes for leaf in leaves]}")
    payload = []
    for frame, leaf in zip(frames, leaves, strict=True):
        array = np.frombuffer(frame, leaf.dtype).reshape(leaf.shape)
        payload.append(jax.random.wrap_key_data(jnp.asarray(array), impl=leaf.keys) if leaf.keys else array)
    return Message(header.version, tuple(payload), header.tally)
