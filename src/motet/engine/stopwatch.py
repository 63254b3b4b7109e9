"""What workers do in how many seconds, and what of it tells of a call, a message or an environment."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from motet.engine.assemble import Assembly
from motet.engine.perform import Performer
from motet.engine.timeline import Recorder
from motet.engine.waits import ENVIRONMENTS
from motet.flow.graph import Graph
from motet.plan.cost import call_key
from motet.plan.plan import Plan
from motet.plan.project import Rounds
from motet.plan.schedule import Ask, Call, Operation


@dataclass
class Seen:
    """When anybody last did something, by the wall's clock and by the processor's."""

    wall: float = 0.0
    cpu: float = 0.0


@dataclass
class Stopwatch(Recorder):
    """Times everything, from beginning to end."""

    on: bool = True
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(kind, name) -> how long it took, each time."""
    busy: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of calls: seconds since whatever was before, by the wall's clock and by the processor's."""
    seen: Seen = field(default_factory=Seen)
    """All workers of a plan have one together."""

    def iterated(self) -> None:
        self.on = True

    def add(self, kind: Any, name: str, start: float) -> None:
        wall, cpu, seen = time.perf_counter(), time.process_time(), self.seen
        self.seconds.setdefault((kind, name), []).append(wall - start)
        if kind == "compute" and seen.wall:
            before = self.busy.get(name, (0.0, 0.0))
            self.busy[name] = before[0] + wall - seen.wall, before[1] + cpu - seen.cpu
        seen.wall, seen.cpu = wall, cpu

    def clear(self) -> None:
        self.seconds.clear()
        self.busy.clear()


def cores_of(wall: float, cpu: float) -> float:
    """How many cores are kept busy; a little more than one is one, and Python's own threads."""
    return cpu / wall if cpu > 1.2 * wall else 1.0


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
    reporting: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Timed:
    """So many iterations together, by the wall's clock and by the processor's."""

    wall: float
    cpu: float
    count: int
    whole: list[float]
    """Seconds of an iteration, by each call of many."""
    reporting: list[float]
    """Seconds after each iteration, of whoever reports on it."""


def note(graph: Graph, plan: Plan, assembly: Assembly, samples: Samples, timed: Timed, wanted: frozenset[str]) -> None:
    """Add to the samples what was seen of a plan: of its calls, those whose keys are wanted."""
    samples.reporting += timed.reporting
    for each in assembly.performers:
        fragment, watch = plan.fragments[each.worker.fragment], watch_of(each)
        kind, size = each.home.place.devices[0].platform, graph.num_envs / fragment.cut.parts
        calls = {call.label: call for call in calls_of(each.worker.schedule.body)}

        def add(call: Call, whole: bool, seconds: float, demand: float) -> None:
            key = call_key(kind, call, fragment.shards, whole)  # noqa: B023 - used in this round alone
            if whole or key in wanted:
                samples.calls.setdefault(key, {})[size] = seconds  # noqa: B023
                samples.demand[key] = demand

        if each.worker.schedule.whole and timed.whole:
            add(each.worker.schedule.whole, True, statistics.median(timed.whole), cores_of(timed.wall, timed.cpu))
        for (what, name), times in watch.seconds.items():
            median = statistics.median(times) if times else 0.0
            if what == "compute" and name in calls:
                add(calls[name], False, median, cores_of(*watch.busy.get(name, (1.0, 1.0))))
            elif what == "compute" and name.startswith("stack "):
                samples.stack.append((_stacked(graph, each, name.removeprefix("stack "), fragment.cut.parts), median))
            elif what == "replay":
                samples.replay[f"{fragment.place} {name}"] = median
            elif what in ("send", "receive"):
                _note_message(assembly, each, what, name, median, samples)
    if not assembly.whole:
        _note_overheads(assembly, samples, timed)


def _note_overheads(assembly: Assembly, samples: Samples, timed: Timed) -> None:
    """What is left of the time when all that was timed is taken away, for each request."""
    found = [item for each in assembly.performers for item in watch_of(each).seconds.items()]
    spans = [times for (what, _), times in found if what != "wait"]  # while one waits, others are at work
    busy, requests = sum(map(sum, spans)), sum(map(len, spans))
    asking = sum(each.ledger.waiting.get(ENVIRONMENTS, 0.0) for each in assembly.performers)
    asked = timed.count * sum(_asked(each.worker.schedule.body) for each in assembly.performers)
    if asked:
        samples.asking.append(asking / asked)
    if requests + asked:
        samples.handling.append(max(0.0, timed.wall - busy - asking - sum(timed.reporting)) / (requests + asked))


def watch_of(performer: Performer) -> Stopwatch:
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
