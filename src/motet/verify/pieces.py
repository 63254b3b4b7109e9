"""The same call in pieces: its rows cut, each piece run by itself, and the results put together as an engine would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.batch import SHARDS
from motet.flow.combine import join
from motet.flow.graph import Cut, Graph, Node, Var
from motet.flow.jaxprs import jaxpr_as_fun
from motet.flow.values import is_key
from motet.verify.precision import looser
from motet.verify.sequential import Leaves, NodeCall

REPLICAS, TWO_SHARDS = Cut(2), Cut(2, 2)
"""Two pieces that know nothing of each other, and two that collectives join."""
EXACT = 1e-9
"""What the order of additions may change in double precision, as a share of the largest number of an array."""
TINY = 1e-13
"""And where numbers cancel each other, so that none is left."""


@dataclass(frozen=True)
class Difference:
    """A leaf that comes out otherwise in pieces."""

    leaf: str
    """Such as `gradient.0['bias']`."""
    rows: bool
    """Whether it has a row for each environment."""
    largest: float
    """The largest difference."""
    scale: float
    """The largest number in it."""

    def __str__(self) -> str:
        return f"{self.leaf} by {self.largest:.2g}, where its largest number is {self.scale:.2g}"


class PieceRunner:
    """The nodes of one graph, run in pieces."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self._functions: dict[tuple[str, Cut], Any] = {}

    def can(self, node: Node, cut: Cut) -> bool:
        """Whether plans may cut the node so: a statistic needs collectives, and a state of all environments cannot be
        changed in two places that know nothing of each other."""
        if cut not in node.code or not any(self.graph.variables[var].divisible for var in node.reads):
            return False
        return cut.shards > 1 or not (node.statistic or node.kind == "apply")

    def differences(self, call: NodeCall, cut: Cut) -> list[Difference]:
        """What comes out otherwise; an empty list: nothing."""
        node = call.node
        reads = [self.graph.variables[name] for name in node.reads]
        writes = [self.graph.variables[name] for name in node.writes if name not in self.graph.views]
        pieces = [self._piece(reads, call.read, cut.parts, part) for part in range(cut.parts)]
        results = self._run(node, cut, call, pieces)
        found = []
        for place, var in enumerate(writes):
            mine = [_share(writes, result, place) for result in results]
            found += self._compare(var, call.wrote[place], mine, looser(node))
        return found

    def _piece(self, reads: Sequence[Var], values: Sequence[Leaves], parts: int, part: int) -> list[Any]:
        return [
            leaf if axis is None else _rows_of(leaf, axis, blocks, parts, part)
            for var, leaves in zip(reads, values, strict=True)
            for leaf, axis, blocks in zip(leaves, var.axes, var.blocks, strict=True)
        ]

    def _run(self, node: Node, cut: Cut, call: NodeCall, pieces: list[list[Any]]) -> list[Leaves]:
        """What each piece writes."""
        if (node.name, cut) not in self._functions:
            function = jaxpr_as_fun(node.code[cut])
            if cut.shards > 1:
                leaves = (0,) * len(pieces[0])
                function = jax.vmap(function, (None, 0, None, *leaves), axis_name=SHARDS)
            self._functions[node.name, cut] = jax.jit(function)
        function = self._functions[node.name, cut]
        if cut.shards == 1:
            return [
                tuple(function(call.key, np.int32(part), call.index, *leaves)) for part, leaves in enumerate(pieces)
            ]
        stacked = [jnp.stack(leaf) for leaf in zip(*pieces, strict=True)]
        results = function(call.key, jnp.arange(cut.parts, dtype=jnp.int32), call.index, *stacked)
        return [tuple(leaf[part] for leaf in results) for part in range(cut.parts)]

    def _compare(self, var: Var, whole: Leaves, pieces: Sequence[Leaves], times: float) -> Iterator[Difference]:
        for place, (path, axis, blocks, how) in enumerate(
            zip(var.paths(), var.axes, var.blocks, var.combine, strict=True)
        ):
            mine = [piece[place] for piece in pieces]
            if axis is not None:
                joined = [_join_rows(mine, axis, blocks)]
            else:
                # What every piece has must be the same in all of them.
                joined = mine if how is None else [join(how, mine)]
            largest, scale = max(distance(whole[place], each) for each in joined)
            if largest > times * (EXACT * scale + TINY):
                yield Difference(path, axis is not None, largest, scale)


def _share(writes: Sequence[Var], leaves: Leaves, place: int) -> Leaves:
    """The leaves of one of the variables that a node writes."""
    first = sum(len(var.avals) for var in writes[:place])
    return leaves[first : first + len(writes[place].avals)]


def _rows_of(leaf: Any, axis: int, blocks: int, parts: int, part: int) -> Any:
    """A piece's rows: of each block its share."""
    shape = leaf.shape
    cut = leaf.reshape(*shape[:axis], blocks, parts, -1, *shape[axis + 1 :])
    return jnp.take(cut, part, axis + 1).reshape(*shape[:axis], shape[axis] // parts, *shape[axis + 1 :])


def _join_rows(pieces: Sequence[Any], axis: int, blocks: int) -> Any:
    """The rows of all pieces, in the order of the whole batch."""
    shape = pieces[0].shape
    cut = [piece.reshape(*shape[:axis], blocks, -1, *shape[axis + 1 :]) for piece in pieces]
    joined = jnp.concatenate(cut, axis + 1)
    return joined.reshape(*shape[:axis], shape[axis] * len(pieces), *shape[axis + 1 :])


def distance(one: Any, other: Any) -> tuple[float, float]:
    """The largest difference of two arrays, and the largest number in them. What is no number is one if both agree."""
    one, other = (np.asarray(jax.random.key_data(each) if is_key(each) else each) for each in (one, other))
    if one.shape != other.shape:
        return float("inf"), 1.0
    if one.dtype.kind not in "fc":
        return float((one != other).any()), 1.0
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(one - other))
    sizes = np.abs(np.stack([one, other]))
    largest = np.where(np.isnan(apart), np.inf, apart).max(initial=0)
    return float(largest), float(sizes[np.isfinite(sizes)].max(initial=0))
