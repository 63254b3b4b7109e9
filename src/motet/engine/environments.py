"""The host environments of one worker.

A pool is opened where the worker runs, when its first episodes begin, and closed when the run is over, however it ends.
What it returns stays in NumPy until a compiled call or a port takes it, so that a rollout crosses to the device once
and not step by step.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from motet.engine.place import Place
from motet.engine.timeline import Recorder
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
    recorder: Recorder = field(default_factory=Recorder)
    shared: bool = False
    """Whether other workers have the same thread, so that it must not wait for this one's environments alone."""
    pool: Pool | None = None
    busy_since: float | None = None
    """When the call began that the environments have not answered yet."""
    spent: float = 0.0
    """Seconds in which somebody waited for them."""
    lost: Leaves | None = None
    """After a run was taken up again: the first observations of new episodes. The step that is asked for next was
    decided on for others, which are gone."""
    ranges: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    """For each node that was asked, which leaves are which variable's."""

    @cached_property
    def spreads(self) -> bool:
        """Whether several devices share what they return."""
        return self.place.sharded

    def busy(self) -> Busy:
        return Busy(self)

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

    def resume(self, node: Node) -> None:
        """Open the environments of a run that is taken up again. They cannot be saved, so new episodes begin."""
        assert node.host is not None
        with self.busy():
            self.pool = node.host.environment.open(self.opening)
            self.lost = tuple(map(np.array, self.pool.reset()))

    def _step_that_was_lost(self, observation: Leaves) -> HostStep:
        """As if every worker had died in this step: its rows are marked, and nothing is learned from them."""
        self.lost, count = None, self.opening.count
        no, none = np.zeros(count, bool), np.zeros(count, np.int32)
        return HostStep(observation, observation, np.zeros(count, np.float32), no, no, no, none)

    def _step(self, action: Leaves) -> Generator[Wait, None, HostStep]:
        assert self.pool is not None
        if self.lost is not None:
            return self._step_that_was_lost(self.lost)
        with self.busy():
            if not (self.shared and isinstance(self.pool, Waitable)):
                return self.pool.step(action)
            self.pool.begin(action)
            yield EnvironmentsReady(self.pool)
            return self.pool.finish()

    def step(self, action: Leaves) -> HostStep:
        """A step that a compiled program asks for."""
        assert self.pool is not None
        if self.lost is not None:
            return self._step_that_was_lost(self.lost)
        with self.busy():
            return self.pool.step(action)

    def _named(self, node: Node, leaves: tuple[Any, ...]) -> Variables:
        """Tell which leaves are which variable's, and spread them where several devices share them."""
        if self.spreads:
            axes = [axis for name in node.writes for axis in self.graph.variables[name].axes]
            leaves = self.place.put_all(leaves, axes)
        if node.name not in self.ranges:
            ends = list(accumulate(len(self.graph.variables[name].avals) for name in node.writes))
            self.ranges[node.name] = list(zip(node.writes, [0, *ends], ends, strict=False))
        return {name: leaves[start:stop] for name, start, stop in self.ranges[node.name]}

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


class Busy:
    """While somebody waits for environments. No generator, which takes longer than some steps."""

    __slots__ = ("environments", "start")

    def __init__(self, environments: Environments):
        self.environments = environments

    def __enter__(self) -> None:
        self.environments.busy_since, self.start = time.monotonic(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        environments = self.environments
        environments.spent += time.perf_counter() - self.start
        if environments.recorder.on:
            environments.recorder.add("environments", "a step of the environments", self.start)
        environments.busy_since = None
