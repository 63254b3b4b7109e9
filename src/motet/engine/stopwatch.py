"""What workers do in how many seconds, and what of it tells of a call, a message or an environment."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motet.engine.assemble import Assembly
from motet.engine.perform import Performer
from motet.engine.timeline import Recorder
from motet.engine.waits import ENVIRONMENTS
from motet.flow.graph import Graph
from motet.plan.keys import call_key, message_key, reports_as
from motet.plan.machine import kind_named
from motet.plan.plan import Plan
from motet.plan.project import Rounds
from motet.plan.schedule import Ask, Call, Operation


@dataclass
class Seen:
    """When anybody last did something, by the wall's clock and by the processor's, and who."""

    wall: float = 0.0
    cpu: float = 0.0
    who: Stopwatch | None = None


@dataclass
class Stopwatch(Recorder):
    """Times everything, from beginning to end."""

    on: bool = True
    looks_away: bool = False
    """While everything comes back into the caches, nothing is timed."""
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """(kind, name) -> how long it took, each time."""
    busy: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of calls: seconds since whatever was before, by the wall's clock and by the processor's."""
    between: list[float] = field(default_factory=list)
    """Seconds from one thing to the next of the same worker."""
    seen: Seen = field(default_factory=Seen)
    """All workers of a plan have one together."""

    def iterated(self) -> None:
        self.on, self.seen.wall = True, 0.0  # what is between two iterations is a report

    def add(self, kind: Any, name: str, start: float) -> None:
        wall, cpu, seen = time.perf_counter(), time.process_time(), self.seen
        if self.looks_away:
            seen.wall = 0.0
            return
        self.seconds.setdefault((kind, name), []).append(wall - start)
        if seen.who is self and seen.wall:
            self.between.append(start - seen.wall)
        if kind == "compute" and seen.wall:
            before = self.busy.get(name, (0.0, 0.0))
            self.busy[name] = before[0] + wall - seen.wall, before[1] + cpu - seen.cpu
        seen.wall, seen.cpu, seen.who = wall, cpu, self

    def clear(self) -> None:
        self.seconds.clear()
        self.between.clear()
        self.busy.clear()


def mostly(took: Sequence[float]) -> float:
    """Seconds of what was done again and again, in most stretches of it.

    Of a stretch the mean, not the median: now and then an episode ends, or the machine does something else for a
    moment, and that is part of the cost. Where it stood still for long is in few of them, and does not count.
    """
    long = max(1, len(took) // STRETCHES)
    return statistics.median(statistics.mean(took[at : at + long]) for at in range(0, len(took) - long + 1, long))


STRETCHES = 9


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
    messages: dict[str, dict[float, float]] = field(default_factory=dict)
    """Key -> bytes -> seconds."""
    send: list[tuple[float, float]] = field(default_factory=list)
    receive: list[tuple[float, float]] = field(default_factory=list)
    stack: list[tuple[float, float]] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    handling: list[float] = field(default_factory=list)
    reporting: dict[str, list[float]] = field(default_factory=dict)
    """By who reports: seconds after an iteration, of each worker."""


@dataclass(frozen=True)
class Timed:
    """So many iterations together, by the wall's clock and by the processor's."""

    wall: float
    cpu: float
    count: int
    whole: list[float] = field(default_factory=list)
    """Seconds of an iteration, by each call of many."""
    reporting: Mapping[str, list[float]] = field(default_factory=dict)
    """By worker: seconds after each iteration."""

    def __add__(self, other: Timed) -> Timed:
        return Timed(self.wall + other.wall, self.cpu + other.cpu, self.count + other.count)


def note(graph: Graph, plan: Plan, assembly: Assembly, samples: Samples, timed: Timed, wanted: frozenset[str]) -> None:
    """Add to the samples what was seen of a plan: of its calls, those whose keys are wanted."""
    for each in assembly.performers:
        fragment, watch = plan.fragments[each.worker.fragment], watch_of(each)
        kind, size = kind_named(each.home.place.devices[0].platform), graph.num_envs / fragment.cut.parts
        calls = {call.label: call for call in calls_of(each.worker.schedule.body)}

        def add(call: Call, whole: bool, seconds: float, demand: float) -> None:
            key = call_key(kind, call, fragment.shards, whole)  # noqa: B023 - used in this round alone
            if whole or key in wanted:
                samples.calls.setdefault(key, {})[size] = seconds  # noqa: B023
                samples.demand[key] = demand

        if each.worker.schedule.whole and timed.whole:
            add(each.worker.schedule.whole, True, mostly(timed.whole), cores_of(timed.wall, timed.cpu))
        for (what, name), times in watch.seconds.items():
            seconds = mostly(times) if times else 0.0
            if what == "compute" and name in calls:
                add(calls[name], False, seconds, cores_of(*watch.busy.get(name, (1.0, 1.0))))
            elif what == "compute" and name.startswith("stack "):
                samples.stack.append((_stacked(graph, each, name.removeprefix("stack "), fragment.cut.parts), seconds))
            elif what == "replay":
                samples.replay[f"{fragment.place} {name}"] = seconds
        _note_messages(assembly, each, samples)
        if found := timed.reporting.get(each.worker.name):
            samples.reporting.setdefault(reports_as(graph, each.worker.schedule.state), []).append(mostly(found))
    if not assembly.whole:
        _note_overheads(assembly, samples, timed)


def _note_overheads(assembly: Assembly, samples: Samples, timed: Timed) -> None:
    """What the interpreter takes from one request to the next, and around a step of host environments."""
    asking = sum(each.ledger.waiting.get(ENVIRONMENTS, 0.0) for each in assembly.performers)
    asked = timed.count * sum(_asked(each.worker.schedule.body) for each in assembly.performers)
    if asked:
        samples.asking.append(asking / asked)
    for each in assembly.performers:  # each counts as often as it was seen: what comes often is what matters
        found = watch_of(each).between
        samples.handling += [mostly(found)] * len(found)


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


def _note_messages(assembly: Assembly, performer: Performer, samples: Samples) -> None:
    """Of each wire, what it takes to hand over all that goes over it, and to take all in."""
    worker, seconds = performer.worker, watch_of(performer).seconds
    for what, ends in (("send", performer.ports.outgoing), ("receive", performer.ports.incoming)):
        for wire, channels in ends.items():
            names = dict.fromkeys(each.name if what == "send" else wire.name for each in channels)
            times = [mostly(seconds[what, name]) for name in names if seconds.get((what, name))]
            sizes = [each.bytes / each.messages for each in channels if each.messages]
            if wire not in assembly.recurring or not times or not sizes or not worker.started:
                continue
            key, size = message_key(what, wire, len(channels)), sum(sizes)
            samples.messages.setdefault(key, {})[size] = sum(times)
            points = samples.send if what == "send" else samples.receive
            points.append((size / len(channels), sum(times) / len(channels)))


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
