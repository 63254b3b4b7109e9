"""How long host environments take for a step: pools that are opened, stepped with random actions, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import numpy as np

from motet.engine.detect import cores
from motet.engine.stopwatch import mostly
from motet.errors import described
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment, Opening
from motet.plan.cost import Fit
from motet.plan.plan import Plan

OPENING = 3.0
"""Seconds after which no further pool is opened."""
REST = 1e-3
"""Seconds between two steps, where something else is done meanwhile: a policy decides, messages come and go."""
WARM, FIRST = 0.06, 0.1
"""Seconds of steps that do not count, since what has just begun is slow, and of the first that do."""


@dataclass
class Pool:
    """Environments that are timed."""

    env: HostEnvironment
    count: int
    workers: int
    actions: Sequence[tuple[np.ndarray, ...]]
    """Some to take turns with."""
    took: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    """Seconds that this process computed for, in each step."""
    rested: list[float] = field(default_factory=list)
    """Seconds of steps with something else between them."""

    def __enter__(self) -> Self:
        self.opened: Any = self.env.open(Opening(0, self.count, 0, self.workers))
        try:
            self.opened.reset()
            self.step_for(WARM)
            self.took, self.used, self.rested = [], [], []
            self.step_for(FIRST)
        except BaseException:
            self.opened.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.opened.close()

    def step_for(self, seconds: float) -> None:
        """Half of the time one step after the other, half of it with a rest between."""
        until = time.perf_counter() + seconds / 2
        while not self.took or time.perf_counter() < until:
            before = time.process_time()
            self.took.append(self._step())
            self.used.append(time.process_time() - before)
        until += seconds / 2
        while not self.rested or time.perf_counter() < until:
            _be_busy(REST)
            self.rested.append(self._step())

    def _step(self) -> float:
        start = time.perf_counter()
        self.opened.step(self.actions[(len(self.took) + len(self.rested)) % len(self.actions)])
        return time.perf_counter() - start

    @property
    def demand(self) -> float:
        """How many cores it keeps busy."""
        return float(min(self.workers, cores())) if self.workers else max(1.0, sum(self.used) / sum(self.took))


class Pools:
    """All pools that tell what the environments of some plans take. They are open until it is closed."""

    def __init__(self, graph: Graph, plans: Sequence[Plan], announce: Callable[[str], None] = lambda text: None):
        self.left_out: list[str] = []
        self.pools: list[Pool] = []
        self.stack = ExitStack()
        env = next((node.host.environment for node in graph.nodes() if node.host is not None), None)
        began, wanted = time.perf_counter(), wanted_pools(graph, plans) if env is not None else ()
        actions = _actions(env, graph.num_envs) if env is not None else []
        for workers, count in wanted:
            if self.pools and time.perf_counter() - began > OPENING:
                self.left_out.append(f"{count} environments, {workers} workers: no time was left")
                continue
            announce(f"timing {count} environments in {f'{workers} processes' if workers else 'a thread'}")
            try:
                assert env is not None
                self.pools.append(self.stack.enter_context(Pool(env, count, workers, _first(actions, count))))
            except Exception as error:  # whatever an environment raises: the others are still worth measuring
                self.left_out.append(f"{count} environments, {workers} workers: {described(error)}")

    def step_for(self, seconds: float) -> None:
        """Time each for so long once more."""
        for pool in list(self.pools):
            try:
                pool.step_for(seconds)
            except Exception as error:
                self.pools.remove(pool)
                self.left_out.append(f"{pool.count} environments, {pool.workers} workers: {described(error)}")

    def fits(self, rested: bool = False) -> Mapping[str, Fit]:
        """By the number of worker processes: one step of so many environments."""
        found: dict[str, list[Pool]] = {}
        for pool in self.pools:
            found.setdefault(str(pool.workers), []).append(pool)
        return {
            workers: Fit(
                tuple(sorted((float(pool.count), mostly(pool.rested if rested else pool.took)) for pool in pools)),
                max(pool.demand for pool in pools),
            )
            for workers, pools in found.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()


def wanted_pools(graph: Graph, plans: Sequence[Plan]) -> list[tuple[int, int]]:
    """(worker processes, environments) to time, what matters most first: all environments in a thread, then in as many
    processes as any plan has at most, of which fewer follow; then the smallest number in a thread."""
    found: dict[int, set[int]] = {0: {graph.num_envs}}
    for plan in plans:
        homes = plan.homes(graph)
        for name in {homes[node.name] for node in graph.nodes() if node.host is not None}:
            fragment = plan.fragments[name]
            found.setdefault(fragment.workers, set()).add(graph.num_envs // fragment.replicas)
    most = max(found)
    return list(dict.fromkeys([(0, max(found[0])), (most, max(found[most])), (0, min(found[0]))]))


def _be_busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def _first(actions: Sequence[tuple[np.ndarray, ...]], count: int) -> list[tuple[np.ndarray, ...]]:
    """Those of the first environments."""
    return [tuple(np.ascontiguousarray(leaf[:count]) for leaf in each) for each in actions]


def _actions(env: HostEnvironment, count: int, different: int = 8) -> list[tuple[np.ndarray, ...]]:
    keys = jax.random.split(jax.random.key(0), (different, count))
    drawn = jax.tree.leaves(jax.vmap(jax.vmap(env.action_space.sample))(keys))
    return [tuple(np.asarray(leaf[each]) for leaf in drawn) for each in range(different)]
