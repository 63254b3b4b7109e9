"""How long the parts of a plan take: its real workers, one after the other in one thread, on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from motet.engine import serial
from motet.engine.assemble import Assembly, Programs, Settings, assemble
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.timeline import Recorder
from motet.engine.waits import ENVIRONMENTS
from motet.flow.graph import Graph, Loop
from motet.flow.host import HostCall, HostStep, Leaves
from motet.plan.cost import call_key
from motet.plan.plan import Plan
from motet.plan.project import Rounds
from motet.plan.schedule import Ask, Call, Operation

PREFILL = 64
"""Rounds before the first iteration, of a loop that would have more: enough to draw from."""
STEADY = 0.03
"""Measuring ends when the median of everything moved by no more than this share."""
LONG = 0.03
"""Seconds that a call of many iterations is to take, so that its beginning does not count."""


@dataclass
class Stopwatch(Recorder):
    """Times everything, from beginning to end."""

    on: bool = True
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(kind, name) -> how long it took, each time."""

    def iterated(self) -> None:
        self.on = True

    def add(self, kind: Any, name: str, start: float) -> None:
        self.seconds.setdefault((kind, name), []).append(time.perf_counter() - start)


@dataclass
class Samples:
    """What was seen so far, of all plans."""

    calls: dict[str, dict[float, float]] = field(default_factory=dict)
    """Key -> environments -> seconds."""
    demand: dict[str, float] = field(default_factory=dict)
    replay: dict[str, float] = field(default_factory=dict)
    send: list[tuple[float, float]] = field(default_factory=list)
    receive: list[tuple[float, float]] = field(default_factory=list)
    stack: list[tuple[float, float]] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    handling: list[float] = field(default_factory=list)


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


def time_plan(
    graph: Graph, plan: Plan, devices: Mapping[str, Any], samples: Samples, programs: Programs, seconds: float
) -> None:
    """Run a plan until its times are steady, or for so many seconds after it is compiled, and add what was seen."""
    counted = _Counted()
    assembly = assemble(graph, plan, devices, Settings(), on_done=counted.done, programs=programs)
    step = next((node for node in graph.nodes() if node.host is not None and not node.host.opens), None)
    for each in assembly.performers:
        each.ledger.recorder = Stopwatch()
        if step is not None and step.host is not None:
            each.environments.pool = Still(graph, step.host, each.environments.opening.count)
    try:
        serial.drive(assembly, 2)  # everything is compiled now
        _reset(assembly)
        counted.most = _many(assembly, counted)
        _note(graph, plan, assembly, samples, counted, _until_steady(assembly, counted, seconds))
    finally:
        assembly.close()


@dataclass
class _Counted:
    """How many iterations are to be one call, where many are, and how many were done."""

    most: int = 1
    before: int = 0
    whole: list[float] = field(default_factory=list)
    """Seconds of an iteration, by each call of many."""

    def done(self, performer: Performer, done: Done) -> int | None:
        performer.pace = self.most
        watch = performer.ledger.recorder
        if done.rows is not None and isinstance(watch, Stopwatch):
            took = [times.pop() for (_, name), times in watch.seconds.items() if name.startswith("iteration") and times]
            self.whole += [each / max(1, done.iteration - self.before) for each in took]
        self.before = done.iteration
        return self.most if performer.worker.whole else None


def _reset(assembly: Assembly) -> None:
    for each in assembly.performers:
        _watch(each).seconds.clear()
        each.ledger.waiting.clear()


def _many(assembly: Assembly, counted: _Counted) -> int:
    """How many iterations of a fused plan to run at once."""
    if not assembly.whole:
        return 1
    serial.drive(assembly, 3)
    took, counted.whole = counted.whole[-1], []
    return max(1, min(256, int(LONG / max(took, 1e-6))))


@dataclass(frozen=True)
class _Timed:
    """So many iterations together, by the wall's clock and by the processor's."""

    wall: float
    cpu: float
    count: int

    @property
    def demand(self) -> float:
        """How many cores were busy; a little more than one is one, and Python's own threads."""
        return self.cpu / self.wall if self.cpu > 1.2 * self.wall else 1.0


def _until_steady(assembly: Assembly, counted: _Counted, seconds: float) -> _Timed:
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
    return _Timed(time.perf_counter() - began, time.process_time() - cpu, until - first)


def _medians(assembly: Assembly, counted: _Counted) -> dict[Any, float]:
    found: dict[Any, float] = {"whole": statistics.median(counted.whole)} if counted.whole else {}
    for each in assembly.performers:
        seconds = _watch(each).seconds
        found |= {(each.worker.name, *key): statistics.median(times) for key, times in seconds.items() if times}
    return found


def _note(graph: Graph, plan: Plan, assembly: Assembly, samples: Samples, counted: _Counted, timed: _Timed) -> None:
    for each in assembly.performers:
        fragment, watch = plan.fragments[each.worker.fragment], _watch(each)
        kind, size = each.home.place.devices[0].platform, graph.num_envs / fragment.cut.parts
        calls = {call.label: call for call in calls_of(each.worker.schedule.body)}

        def note(call: Call, whole: bool, seconds: float, kind: str = kind, size: float = size) -> None:
            key = call_key(kind, call, fragment.shards, whole)  # noqa: B023 - used in this round alone
            samples.calls.setdefault(key, {})[size] = seconds
            samples.demand[key] = timed.demand

        if each.worker.schedule.whole and counted.whole:
            note(each.worker.schedule.whole, True, statistics.median(counted.whole))
        for (what, name), times in watch.seconds.items():
            median = statistics.median(times) if times else 0.0
            if what == "compute" and name in calls:
                note(calls[name], False, median)
            elif what == "compute" and name.startswith("stack "):
                samples.stack.append((_stacked(graph, each, name.removeprefix("stack "), fragment.cut.parts), median))
            elif what == "replay":
                samples.replay[f"{fragment.place} {name}"] = median
            elif what in ("send", "receive"):
                _note_message(assembly, each, what, name, median, samples)
    if not assembly.whole:
        _note_overheads(assembly, samples, timed)


def _note_overheads(assembly: Assembly, samples: Samples, timed: _Timed) -> None:
    """What is left of the time when all that was timed is taken away, for each request."""
    found = [item for each in assembly.performers for item in _watch(each).seconds.items()]
    spans = [times for (what, _), times in found if what != "wait"]  # while one waits, others are at work
    busy, requests = sum(map(sum, spans)), sum(map(len, spans))
    asking = sum(each.ledger.waiting.get(ENVIRONMENTS, 0.0) for each in assembly.performers)
    asked = timed.count * sum(_asked(each.worker.schedule.body) for each in assembly.performers)
    if asked:
        samples.asking.append(asking / asked)
    if requests + asked:
        samples.handling.append(max(0.0, timed.wall - busy - asking) / (requests + asked))


def _watch(performer: Performer) -> Stopwatch:
    watch = performer.ledger.recorder
    assert isinstance(watch, Stopwatch)
    return watch


def _asked(operations: Iterable[Operation]) -> int:
    """How often host environments are asked between calls, in an iteration."""
    total = 0
    for each in operations:
        if isinstance(each, Rounds):
            total += each.count * _asked(each.body)  # type: ignore[arg-type]
        total += isinstance(each, Ask)
    return total


def _note_message(
    assembly: Assembly, performer: Performer, what: str, name: str, seconds: float, samples: Samples
) -> None:
    for (wire, sender, receiver), channel in assembly.channels.items():
        mine = (wire.source, sender) if what == "send" else (wire.target, receiver)
        if mine != (performer.worker.fragment, performer.worker.index) or not channel.messages:
            continue
        size = channel.bytes / channel.messages
        if what == "send" and channel.name == name:
            samples.send.append((size, seconds))
        elif what == "receive" and wire.name == name:
            samples.receive.append((size, seconds))


def _stacked(graph: Graph, performer: Performer, loop: str, parts: int) -> float:
    for each in _rounds(performer.worker.schedule.body):
        if each.name == loop:
            return float(sum(graph.variables[out.name].nbytes(parts) for out in each.outputs))
    return 0.0


def _rounds(operations: Iterable[Operation]) -> Iterable[Rounds]:
    for each in operations:
        if isinstance(each, Rounds):
            yield each
            yield from _rounds(each.body)  # type: ignore[arg-type]


def calls_of(operations: Iterable[Operation]) -> Iterable[Call]:
    """Every call, those in loops included."""
    for each in operations:
        if isinstance(each, Call):
            yield each
        elif isinstance(each, Rounds):
            yield from calls_of(each.body)  # type: ignore[arg-type]
