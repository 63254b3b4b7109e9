"""The host environments of one worker.

A pool is opened where the worker runs, when its first episodes begin, and closed when the run is over, however it ends.
What it returns stays in NumPy until a compiled call or a port takes it, so that a rollout crosses to the device once
and not step by step.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from motet.engine.place import Place
from motet.engine.variables import Variables
from motet.engine.waits import EnvironmentsReady, Wait
from motet.flow.environment import advance_host, begin_host
from motet.flow.graph import Graph, Node
from motet.flow.host import HostStep, Leaves, Opening, Pool, Waitable


@dataclass
class Environments:
    """Where a worker's environments are."""

    graph: Graph
    place: Place
    opening: Opening
    shared: bool = False
    """Whether other workers have the same thread, so that it must not wait for this one's environments alone."""
    pool: Pool | None = None
    busy_since: float | None = None
    """When the call began that the environments have not answered yet."""
    ranges: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    """For each node that was asked, which leaves are which variable's."""

    @contextmanager
    def busy(self) -> Generator[None, None, None]:
        self.busy_since = time.monotonic()
        try:
            yield
        finally:
            self.busy_since = None

    def answer(self, node: Node, values: Variables) -> Generator[Wait, None, Variables]:
        """What the environments make of a node -> what it writes."""
        call = node.host
        assert call is not None
        if call.opens:
            with self.busy():
                if self.pool is None:
                    self.pool = call.environment.open(self.opening)
                return self._named(node, begin_host(self.pool))
        length, total = map(np.asarray, values[call.episode])
        step = yield from self._step(tuple(map(np.asarray, values[call.action])))
        return self._named(node, advance_host(step, length, total))

    def _step(self, action: Leaves) -> Generator[Wait, None, HostStep]:
        assert self.pool is not None
        with self.busy():
            if not (self.shared and isinstance(self.pool, Waitable)):
                return self.pool.step(action)
            self.pool.begin(action)
            yield EnvironmentsReady(self.pool)
            return self.pool.finish()

    def step(self, action: Leaves) -> HostStep:
        """A step that a compiled program asks for."""
        assert self.pool is not None
        with self.busy():
            return self.pool.step(action)

    def _named(self, node: Node, leaves: tuple[Any, ...]) -> Variables:
        """Tell which leaves are which variable's, and spread them where several devices share them."""
        if self.place.sharded:
            axes = [axis for name in node.writes for axis in self.graph.variables[name].axes]
            leaves = tuple(map(self.place.put, leaves, axes))
        if node.name not in self.ranges:
            ends = list(accumulate(len(self.graph.variables[name].avals) for name in node.writes))
            self.ranges[node.name] = list(zip(node.writes, [0, *ends], ends, strict=False))
        return {name: leaves[start:stop] for name, start, stop in self.ranges[node.name]}

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
