"""A replay outside of XLA: in the host's memory or on an OpenCL device.

The random bits of a draw come from the node's key, as they do inside of XLA, so the same items are drawn wherever the
replay lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from motet.engine.lowering import node_keys
from motet.engine.variables import Variables
from motet.flow.graph import Graph, Node
from motet.flow.replay_call import ReplayCall
from motet.plan.schedule import Keep, Schedule
from motet.replay.draws import draw_bits

if TYPE_CHECKING:
    from motet.replay.store import Store


@dataclass
class OutsideReplay:
    """A worker's replay, if it is not inside of XLA."""

    graph: Graph
    where: str
    """ "host" or an OpenCL device; empty: inside of XLA."""
    store: Store | None = None
    draws: dict[str, Any] = field(default_factory=dict)
    """For each node that draws, the compiled function that gives it its random bits."""

    def answer(self, node: Node, values: Variables, root: jax.Array, path: tuple[int, ...]) -> Variables:
        """What the replay makes of a node -> what it writes."""
        call = node.replay
        assert call is not None
        if call.what == "open":
            self.store = call.replay.open(call.example, self.graph.num_envs, self.where)
            return {call.state: ()}
        assert self.store is not None
        if call.what == "sample":
            return self._sample(self.store, node.name, call, root, path)
        if call.what == "sweep":
            swept = self.store.sweep(path[-1], call.size)
            return {
                name: tuple(jax.tree.leaves(each))
                for name, each in zip(call.gives, (swept.items, swept.held), strict=True)
            }
        assert call.takes is not None
        (taken,) = call.takes({name: self._read(values, name) for name in call.takes.names})
        if call.what == "add":
            self.store.add(taken)
        else:
            self.store.update(*taken)
        return {}

    def _read(self, values: Variables, name: str) -> Any:
        return self.graph.variables[name].unpack(tuple(map(np.asarray, values[name])))

    def _sample(self, store: Store, node: str, call: ReplayCall, root: jax.Array, path: tuple[int, ...]) -> Variables:
        if node not in self.draws:
            self.draws[node] = jax.jit(
                lambda root, path: draw_bits(node_keys(root, [node], list(path))[node], 0, call.size)
            )
        bits = np.asarray(self.draws[node](root, np.asarray(path, np.uint32)))
        drawn = store.sample(bits, blocks=call.blocks)
        if call.replay.holds_drawn:
            store.hold(drawn.index)
        parts = (drawn.items, drawn.index, drawn.weight)
        return {name: tuple(jax.tree.leaves(part)) for name, part in zip(call.gives, parts, strict=False)}

    def resume(self, schedule: Schedule, state: Mapping[str, np.ndarray]) -> None:
        """Open the replay where a schedule would, and fill it with what another one remembered."""
        for each in schedule.start:
            if isinstance(each, Keep) and each.node.replay is not None and each.node.replay.what == "open":
                call = each.node.replay
                self.store = store = call.replay.open(call.example, self.graph.num_envs, self.where)
                store.load(state)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
