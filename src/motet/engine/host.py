"""Host environments of one replica: the node of the graph that no compiler can take.

A pool is opened where the replica runs, when its first episodes begin, and closed when the run is over, however it
ends. What it returns stays in NumPy until a compiled call or a link takes it, so that a rollout crosses to the device
once and not step by step.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from motet.engine.place import Place
from motet.engine.supervise import Wait
from motet.flow.environment import advance_host, begin_host
from motet.flow.graph import Graph, Node
from motet.flow.host import Opening, Pool, Waitable

Store = dict[str, tuple[Any, ...]]


@dataclass
class Stand:
    """Where a replica's environments are."""

    opening: Opening
    pool: Pool | None = None
    busy_since: float | None = None
    """When the call began that the environments have not answered yet."""

    shared: bool = False
    """Whether other replicas have the same thread, so that it must not wait for this one's environments alone."""

    inside: bool = True
    """Whether a compiled program may ask for steps itself."""

    @contextmanager
    def busy(self) -> Generator[None, None, None]:
        self.busy_since = time.monotonic()
        try:
            yield
        finally:
            self.busy_since = None

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

    def run(self, store: Store) -> Generator[Wait, None, None]:
        """Ask the pool, and put what it says into the store."""
        if self.node.host and self.node.host.opens:
            leaves = self._begin()
        else:
            leaves = yield from self._advance(store)
        store.update(self._name(leaves))

    def _begin(self) -> tuple[Any, ...]:
        assert self.node.host is not None
        with self.stand.busy():
            if self.stand.pool is None:
                self.stand.pool = self.node.host.environment.open(self.stand.opening)
            return begin_host(self.stand.pool)

    def _advance(self, store: Store) -> Generator[Wait, None, tuple[Any, ...]]:
        pool = self.stand.pool
        length, total = map(np.asarray, store["env"])
        action = tuple(map(np.asarray, store["decision.action"]))
        if self.stand.shared and isinstance(pool, Waitable):
            with self.stand.busy():
                pool.begin(action)
                yield Wait(pool.ready, "its environments", "environments", pool)
                step = pool.finish()
        else:
            assert pool is not None
            with self.stand.busy():
                step = pool.step(action)
        return advance_host(step, length, total)

    def _name(self, leaves: tuple[Any, ...]) -> Store:
        """Tell which leaves are which variable's, and spread them where several devices share them."""
        if self.place.sharded:
            axes = [axis for name in self.node.writes for axis in self.graph.variables[name].axes]
            leaves = tuple(map(self.place.put, leaves, axes))
        return {name: leaves[start:stop] for name, start, stop in self._parts}

    @cached_property
    def _parts(self) -> list[tuple[str, int, int]]:
        """Which leaves are which variable's."""
        ends = list(accumulate(len(self.graph.variables[name].avals) for name in self.node.writes))
        return list(zip(self.node.writes, [0, *ends], ends, strict=False))
