"""A graph run as it stands: one node after the other, all environments in one piece.

No plan, no engine and no compiled loop has a part in it, so what it computes is what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.lowering import node_keys
from motet.flow.environment import advance_host, begin_host
from motet.flow.graph import REDUCE, WHOLE, Graph, Item, Loop, Node
from motet.flow.host import Opening, Pool
from motet.flow.jaxprs import jaxpr_as_fun

Leaves = tuple[Any, ...]


@dataclass(frozen=True)
class NodeCall:
    """One run of a node: where it stands in the loops, what it read and what it wrote."""

    node: Node
    path: tuple[int, ...]
    key: jax.Array
    read: tuple[Leaves, ...]
    """The leaves of each variable read."""
    wrote: tuple[Leaves, ...]

    @property
    def index(self) -> np.int32:
        """The round of the innermost loop around it."""
        return np.uint32(self.path[-1]).astype(np.int32) if self.path else np.int32(0)


@dataclass
class Sequential:
    """One run of a graph."""

    graph: Graph
    seed: int
    listen: Callable[[NodeCall], None]
    """Told of every call of a node that computes."""
    store: dict[str, Leaves] = field(default_factory=dict)
    pool: Pool | None = None

    def __post_init__(self) -> None:
        self._root = jax.random.key(self.seed)
        self._functions: dict[str, Callable[..., Any]] = {}
        self._views = {name: jax.jit(jaxpr_as_fun(view.code)) for name, view in self.graph.views.items()}

    def __call__(self, iterations: int) -> Mapping[str, Leaves]:
        """All variables after so many iterations."""
        try:
            for item in self.graph.root.body:
                if item is self.graph.iteration:
                    self._rounds(self.graph.iteration, (), range(iterations))
                else:
                    self._item(item, ())
        finally:
            if self.pool is not None:
                self.pool.close()
        return self.store

    def _item(self, item: Item, path: tuple[int, ...]) -> None:
        if isinstance(item, Node):
            self._node(item, path)
        elif item.every > 1 and (path[-1] + 1) % item.every:
            for out in item.outputs:
                avals = self.graph.variables[out.name].avals
                self.store[out.name] = tuple(jnp.zeros(aval.shape, aval.dtype) for aval in avals)
        else:
            self._rounds(item, path, range(item.first, item.first + item.count))

    def _rounds(self, loop: Loop, path: tuple[int, ...], numbers: range) -> None:
        rows: dict[str, list[Leaves]] = {out.name: [] for out in loop.outputs}
        for number in numbers:
            for child in loop.body:
                self._item(child, (*path, number))
            for out in loop.outputs:
                rows[out.name].append(self.store[out.inner])
        for out in loop.outputs:
            leaves = zip(*rows[out.name], strict=True)
            self.store[out.name] = tuple(REDUCE[out.how](jnp.stack(leaf)) for leaf in leaves)

    def _node(self, node: Node, path: tuple[int, ...]) -> None:
        read = tuple(map(self._read, node.reads))
        if node.host is not None:
            self._write(node, self._ask(node))
            return
        key = node_keys(self._root, [node.name], path)[node.name]
        call = NodeCall(node, path, key, read, ())
        leaves = [leaf for each in read for leaf in each]
        results = self._function(node)(key, np.int32(0), call.index, *leaves)
        wrote = self._write(node, tuple(results))
        self.listen(NodeCall(node, path, key, read, wrote))

    def _read(self, var: str) -> Leaves:
        if var in self._views:
            return tuple(self._views[var](*self.store[self.graph.views[var].of]))
        return self.store[var]

    def _write(self, node: Node, results: Leaves) -> tuple[Leaves, ...]:
        wrote = []
        for var in (self.graph.variables[name] for name in node.writes if name not in self._views):
            self.store[var.name], results = results[: len(var.avals)], results[len(var.avals) :]
            wrote.append(self.store[var.name])
        return tuple(wrote)

    def _function(self, node: Node) -> Callable[..., Any]:
        """A node's code, compiled. A replay, of which there may be much, is changed where it is."""
        if node.name not in self._functions:
            sizes = [len(self.graph.variables[var].avals) for var in node.reads]
            first = 3 + sum(sizes[: node.reads.index("replay")]) if node.kind in CHANGES else 0
            donated = range(first, first + sizes[node.reads.index("replay")]) if first else ()
            self._functions[node.name] = jax.jit(jaxpr_as_fun(node.code[WHOLE]), donate_argnums=tuple(donated))
        return self._functions[node.name]

    def _ask(self, node: Node) -> Leaves:
        """The environments that are not written in JAX."""
        assert node.host is not None
        if node.host.opens:
            self.pool = node.host.environment.open(Opening(0, self.graph.num_envs, self.seed))
            return begin_host(self.pool)
        assert self.pool is not None
        length, total = map(np.asarray, self.store["env"])
        step = self.pool.step(tuple(map(np.asarray, self.store["decision.action"])))
        return advance_host(step, length, total)


CHANGES = ("remember", "reprioritize")
"""Kinds of nodes that change a replay."""
