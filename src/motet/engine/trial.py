"""A plan that is timed: its real workers, one after the other in one thread, with environments that stand still."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from motet.engine import serial
from motet.engine.assemble import Assembly, Settings, assemble
from motet.engine.blank import leave_out, limit
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter, Watcher
from motet.engine.stopwatch import Samples, Seen, Stopwatch, Timed, calls_of, note, watch_of
from motet.flow.graph import Graph, Loop
from motet.flow.host import HostCall, HostStep, Leaves
from motet.plan.cost import call_key
from motet.plan.plan import Plan
from motet.plan.schedule import Call

PREFILL = 64
"""Rounds before the first iteration, of a loop that would have more: enough to draw from."""
STEADY = 0.03
"""Measuring ends when the median of everything moved by no more than this share."""
LONG = 0.03
"""Seconds that a call of many iterations is to take, so that its beginning does not count."""


class Still:
    """Host environments in which nothing happens, and at once: what is left is what motet itself takes."""

    def __init__(self, graph: Graph, call: HostCall, count: int):
        leaves = [
            tuple(np.zeros(aval.shape, aval.dtype) for aval in graph.variables[name].local(graph.num_envs // count))
            for name in call.writes
        ]
        first, last, *rest = leaves
        flat = [each for (each,) in rest]
        self.answer = HostStep(first, last, *flat)._replace(valid=np.ones(count, np.bool_))

    def reset(self) -> Leaves:
        return self.answer.observation

    def step(self, action: Leaves) -> HostStep:
        return self.answer

    def close(self) -> None: ...


def shortened(graph: Graph) -> Graph:
    """The same loop with few rounds before its first iteration."""
    body = tuple(
        replace(item, count=min(item.count, PREFILL))
        if isinstance(item, Loop) and item is not graph.iteration
        else item
        for item in graph.root.body
    )
    return replace(graph, root=replace(graph.root, body=body))


class Trial:
    """A plan that is to be timed.

    `wanted` are the keys of the calls to be timed (see `call_key`). All others of an iteration are answered with zeros:
    nothing need be compiled for them. The first state is made as always, since environments may take longer from a
    state in which they never are.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        devices: Mapping[str, Any],
        wanted: frozenset[str],
        watcher: Callable[[Reporter], Watcher] | None = None,
    ):
        self.graph, self.plan, self.wanted = graph, plan, wanted
        self.late: list[str] = []
        """Calls that there was no time to compile."""
        reporter = Reporter(graph, plan, _Nobody())
        reporter.watcher = watcher(reporter) if watcher else reporter.watcher
        reporter.until = 2**31
        self.counted = _Counted(reporter)
        self.assembly = assemble(graph, plan, devices, Settings(), on_done=self.counted.done)
        reporter.connect(self.assembly)
        step = next((node for node in graph.nodes() if node.host is not None and not node.host.opens), None)
        seen = Seen()
        for each in self.assembly.performers:
            each.ledger.recorder = Stopwatch(seen=seen)
            if step is not None and step.host is not None:
                each.environments.pool = Still(graph, step.host, each.environments.opening.count)
            known = set(map(id, self._keyed(each, wanted)))
            leave_out(each, [call for call in calls_of(each.worker.schedule.body) if id(call) not in known])

    def compile(self, until: float = math.inf) -> None:
        """Run every call, and forget what came of it: several plans may be compiled before one is timed. After `until`,
        by the clock of `time.perf_counter`, calls that are not compiled yet are left out."""
        limited = [(each, limit(each, self._keyed(each, self.wanted), until)) for each in self.assembly.performers]
        serial.drive(self.assembly, 2)
        for each, calls in limited:
            late = [call.call for call in calls if call.is_late]
            self.late += [call.label for call in late]
            self.wanted -= {self._key(each, call) for call in late}
        for each in self.assembly.performers:
            each.worker.variables, each.worker.iteration, each.worker.started = {}, 0, False
        for channel in self.assembly.channels.values():
            channel.queue.clear()
            channel.recent.clear()

    def time(self, samples: Samples, seconds: float) -> None:
        """Run until the times are steady, or for so many seconds, and add what was seen."""
        serial.drive(self.assembly, 2)
        _reset(self.assembly, self.counted)
        self.counted.most = _many(self.assembly, self.counted)
        timed = _until_steady(self.assembly, self.counted, seconds)
        note(self.graph, self.plan, self.assembly, samples, timed, self.wanted)

    def close(self) -> None:
        self.assembly.close()

    def _keyed(self, performer: Performer, keys: frozenset[str]) -> list[Call]:
        return [call for call in calls_of(performer.worker.schedule.body) if self._key(performer, call) in keys]

    def _key(self, performer: Performer, call: Call) -> str:
        shards = self.plan.fragments[performer.worker.fragment].shards
        return call_key(performer.home.place.devices[0].platform, call, shards, False)


class _Nobody:
    """A watcher that does nothing."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...


@dataclass
class _Counted:
    """How many iterations are to be one call, where many are, and how many were done."""

    reporter: Reporter
    most: int = 1
    before: int = 0
    whole: list[float] = field(default_factory=list)
    """Seconds of an iteration, by each call of many."""
    reporting: list[float] = field(default_factory=list)

    def done(self, performer: Performer, done: Done) -> int | None:
        performer.pace = self.most
        watch = performer.ledger.recorder
        if done.rows is not None and isinstance(watch, Stopwatch):
            took = [times.pop() for (_, name), times in watch.seconds.items() if name.startswith("iteration") and times]
            self.whole += [each / max(1, done.iteration - self.before) for each in took]
        elif done.reported:
            start = time.perf_counter()
            self.reporter.done(performer, done)
            self.reporting.append(time.perf_counter() - start)
        self.before = done.iteration
        return self.most if performer.worker.whole else None


def _reset(assembly: Assembly, counted: _Counted) -> None:
    counted.reporting.clear()
    for each in assembly.performers:
        watch_of(each).clear()
        each.ledger.waiting.clear()


def _many(assembly: Assembly, counted: _Counted) -> int:
    """How many iterations of a fused plan to run at once."""
    if not assembly.whole:
        return 1
    serial.drive(assembly, 3)
    took, counted.whole = counted.whole[-1], []
    return max(1, min(256, int(LONG / max(took, 1e-6))))


def _until_steady(assembly: Assembly, counted: _Counted, seconds: float) -> Timed:
    began, cpu, first = time.perf_counter(), time.process_time(), assembly.performers[0].worker.iteration
    until, before = first, dict[Any, float]()
    while True:
        until += max(2, counted.most)
        serial.drive(assembly, until)
        now = _medians(assembly, counted)
        moved = [abs(now[key] - before.get(key, 0.0)) / max(now[key], 1e-9) for key in now if now[key] > 1e-5]
        if time.perf_counter() - began > seconds or (until - first > 8 and max(moved, default=0.0) < STEADY):
            break
        before = now
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    return Timed(wall, used, until - first, counted.whole, counted.reporting)


def _medians(assembly: Assembly, counted: _Counted) -> dict[Any, float]:
    found: dict[Any, float] = {"whole": statistics.median(counted.whole)} if counted.whole else {}
    for each in assembly.performers:
        seconds = watch_of(each).seconds
        found |= {(each.worker.name, *key): statistics.median(times) for key, times in seconds.items() if times}
    return found
