"""Host environments of one replica: the node of the graph that no compiler can take.

A pool is opened where the replica runs, when its first episodes begin, and closed when the run is over, however it
ends. What it returns stays in NumPy until a compiled call or a link takes it, so that a rollout crosses to the device
once and not step by step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from motet.engine.place import Place
from motet.flow.environment import advance_host, begin_host
from motet.flow.graph import Graph, Node
from motet.flow.host import Opening, Pool

Store = dict[str, tuple[Any, ...]]


@dataclass
class Stand:
    """Where a replica's environments are."""

    opening: Opening
    pool: Pool | None = None
    busy_since: float | None = None
    """When the call began that the environments have not answered yet."""

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


@dataclass(frozen=True)
class HostStep:
    """A node that asks a pool."""

    graph: Graph
    node: Node
    place: Place
    stand: Stand

    def __call__(self, store: Mapping[str, Any], root: jax.Array, path: tuple[int, ...]) -> Store:
        self.stand.busy_since = time.monotonic()
        try:
            leaves = self._begin() if self.node.host and self.node.host.opens else self._advance(store)
        finally:
            self.stand.busy_since = None
        return self._name(leaves)

    def _begin(self) -> tuple[Any, ...]:
        assert self.node.host is not None
        if self.stand.pool is None:
            self.stand.pool = self.node.host.environment.open(self.stand.opening)
        return begin_host(self.stand.pool)

    def _advance(self, store: Mapping[str, Any]) -> tuple[Any, ...]:
        assert self.stand.pool is not None
        length, total = map(np.asarray, store["env"])
        action = tuple(map(np.asarray, store["decision.action"]))
        return advance_host(self.stand.pool, length, total, action)

    def _name(self, leaves: tuple[Any, ...]) -> Store:
        """Tell which leaves are which variable's, and spread them where several devices share them."""
        written: Store = {}
        for var in (self.graph.variables[name] for name in self.node.writes):
            mine, leaves = leaves[: len(var.avals)], leaves[len(var.avals) :]
            if self.place.sharded:
                mine = tuple(self.place.put(leaf, axis) for leaf, axis in zip(mine, var.axes, strict=True))
            written[var.name] = tuple(mine)
        assert not leaves, "the pool returned more leaves than its node writes"
        return written
