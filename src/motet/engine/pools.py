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
PAUSE, REST = 0.15e-3, 1e-3
"""Seconds between two steps of environments that a program asks for, in which it decides what to do; and where more is
done meanwhile: messages come and go, a program is called."""
WARM, FIRST = 0.06, 0.1
"""Seconds of steps that do not count, since what has just begun is slow, and of the first that do."""


@dataclass
class Steps:
    """Steps that were timed."""

    seconds: list[float] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    """How many episodes ended in each."""


@dataclass
class Pool:
    """Environments that are timed."""

    env: HostEnvironment
    count: int
    workers: int
    actions: Sequence[tuple[np.ndarray, ...]]
    """Some to take turns with."""
    paused: Steps = field(default_factory=Steps)
    """With a pause between them."""
    rested: Steps = field(default_factory=Steps)
    """With more between them."""
    inside: list[float] = field(default_factory=list)
    """Seconds of a step that a program asks for, where one was timed."""
    used: float = 0.0
    """Seconds that this process computed for in all of them, and that this thread did."""
    mine: float = 0.0

    def __enter__(self) -> Self:
        self.opened: Any = self.env.open(Opening(0, self.count, 0, self.workers))
        try:
            self.opened.reset()
            self.step_for(WARM)
            self.paused, self.rested, self.used, self.mine = Steps(), Steps(), 0.0, 0.0
            self.step_for(FIRST)
        except BaseException:
            self.opened.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.opened.close()

    def step_for(self, seconds: float) -> None:
        """Half of the time with a pause between two steps, half of it with a rest."""
        self._step_for(seconds / 2, PAUSE, self.paused)
        self._step_for(seconds / 2, REST, self.rested)

    def _step_for(self, seconds: float, busy: float, steps: Steps) -> None:
        until = time.perf_counter() + seconds
        while not steps.seconds or time.perf_counter() < until:
            self._step(busy, steps)

    def _step(self, busy: float, steps: Steps) -> None:
        _be_busy(busy)
        action = self.actions[(len(self.paused.seconds) + len(self.rested.seconds)) % len(self.actions)]
        used, mine, start = time.process_time(), time.thread_time(), time.perf_counter()
        step = self.opened.step(action)
        steps.seconds.append(time.perf_counter() - start)
        self.mine += time.thread_time() - mine
        self.used += time.process_time() - used
        steps.ended.append(int(np.count_nonzero(np.logical_or(step.terminated, step.truncated))))

    @property
    def _took(self) -> float:
        return sum(self.paused.seconds) + sum(self.rested.seconds)

    @property
    def demand(self) -> float:
        """How many cores it keeps busy."""
        return float(min(self.workers, cores())) if self.workers else max(1.0, self.used / self._took)

    @property
    def locked(self) -> float:
        """For which share of a step this thread computes, and nobody else can have Python's lock."""
        return min(1.0, self.mine / self._took)

    @property
    def level(self) -> float:
        """Seconds of a step, with pauses and with rests, as far as they are known."""
        return mostly(self.paused.seconds) + mostly(self.rested.seconds)

    def seconds(self, rested: bool) -> float:
        """Of a usual step in training."""
        took = mostly(self.inside if self.inside and not rested else (self.rested if rested else self.paused).seconds)
        return max(took / UNUSUAL, took + more_in_training((self.paused, self.rested), self.count, self.env.time_limit))


def more_in_training(seen: Sequence[Steps], count: int, limit: int | None) -> float:
    """How many seconds longer than with random actions a step of `count` environments takes in training, or how much
    shorter: other policies end fewer episodes, or more, and to begin one takes time. With a time limit they are taken
    to last for half of it; if there is none, as long as they did."""
    seconds = np.concatenate([np.asarray(each.seconds) / np.median(each.seconds) for each in seen])
    ended = np.concatenate([np.asarray(each.ended, float) for each in seen])
    if limit is None or not ended.any():
        return 0.0
    often, usual = min(1.0, 2 / limit), seconds <= UNUSUAL
    some = np.where(SELDOM < np.mean(ended > 0) < 1 - SELDOM, ended > 0, 0.0)
    features = np.stack([np.ones_like(ended), some, ended], axis=1)[usual]
    costs = np.maximum(np.linalg.lstsq(features, seconds[usual], rcond=None)[0], 0.0)
    expected = np.array([1.0, 1 - (1 - often) ** count, often * count])
    return float((expected - features.mean(axis=0)) @ costs * np.median(seen[0].seconds))


UNUSUAL = 3.0
"""A step that takes so much longer than others was held up by something else."""
SELDOM = 0.02
"""A share of the steps that is too small to tell how they differ from the others."""


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

    def holding(self, count: int) -> list[Pool]:
        """Those with so many environments."""
        return [pool for pool in self.pools if pool.count == count]

    def fits(self, rested: bool = False) -> Mapping[str, Fit]:
        """By the number of worker processes: one step of so many environments."""
        found: dict[str, list[Pool]] = {}
        for pool in self.pools:
            found.setdefault(str(pool.workers), []).append(pool)
        return {
            workers: Fit(
                tuple(sorted((float(pool.count), pool.seconds(rested)) for pool in pools)),
                max(pool.demand for pool in pools),
            )
            for workers, pools in found.items()
        }

    @property
    def locked(self) -> Mapping[str, float]:
        """By the number of worker processes: for which share of a step it has Python's lock."""
        return {str(pool.workers): pool.locked for pool in self.pools}

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
