"""A replay outside of XLA: in the host's memory or on an OpenCL device.

Its nodes become steps of their own. The random bits of a draw come from the node's key, as they do inside of XLA, so
the same items are drawn wherever the replay lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from motet.engine.evaluate import node_keys
from motet.flow.graph import Graph, Node
from motet.replay.draws import draw_bits

if TYPE_CHECKING:
    from motet.replay.store import Store

Values = dict[str, tuple[Any, ...]]


@dataclass
class Vault:
    """Where a replica's replay is."""

    where: str
    """ "host" or an OpenCL device; empty: inside of XLA."""
    store: Store | None = None

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


@dataclass(frozen=True)
class StoreStep:
    """A node that asks a store."""

    graph: Graph
    node: Node
    vault: Vault

    def __call__(self, values: Values, root: jax.Array, path: tuple[int, ...]) -> Values:
        call = self.node.replay
        assert call is not None
        if call.what == "open":
            self.vault.store = call.replay.open(call.example, self.graph.num_envs, self.vault.where)
            return {"replay": ()}
        store = self.vault.store
        assert store is not None
        if call.what == "sample":
            return self._sample(store, root, path)
        if call.what == "sweep":
            swept = store.sweep(path[-1], call.size)
            parts = (swept.items, swept.held)
            return {name: tuple(jax.tree.leaves(part)) for name, part in zip(self.node.writes, parts, strict=True)}
        if call.what == "add":
            assert call.rebuild is not None
            store.add(call.rebuild({name: self._read(values, name) for name in self.node.reads[1:]})[0])
        else:
            store.update(*self._read(values, "priorities"))
        return {}

    def _read(self, values: Values, name: str) -> Any:
        return self.graph.variables[name].unpack(tuple(map(np.asarray, values[name])))

    def _sample(self, store: Store, root: jax.Array, path: tuple[int, ...]) -> Values:
        call = self.node.replay
        assert call is not None
        bits = np.asarray(self._bits(root, np.asarray(path, np.uint32)))
        drawn = store.sample(bits, blocks=call.blocks)
        if call.replay.holds_drawn:
            store.hold(drawn.index)
        parts = (drawn.items, drawn.index, drawn.weight)
        written = [name for name in self.node.writes if name != "replay"]
        return {name: tuple(jax.tree.leaves(part)) for name, part in zip(written, parts, strict=False)}

    @cached_property
    def _bits(self) -> Any:
        assert self.node.replay is not None
        name, size = self.node.name, self.node.replay.size

        def bits(root: jax.Array, path: jax.Array) -> jax.Array:
            return draw_bits(node_keys(root, [name], list(path))[name], 0, size)

        return jax.jit(bits)
