"""How fast a plan would run on a machine: its own workers on a virtual clock, with a book's costs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.engine.charges import Charges
from motet.engine.clock import Use
from motet.engine.rehearse import schedules_of, workers_of
from motet.engine.requests import Compute, Consult, Iterate, Put, Take
from motet.engine.virtual import Log, Simulation, simulate
from motet.engine.worker import Worker
from motet.flow.graph import Graph
from motet.plan.cost import Book
from motet.plan.machine import Machine
from motet.plan.memory import Memory, memory_of
from motet.plan.plan import Lag, Plan
from motet.plan.project import Receive, Rounds, Send
from motet.plan.schedule import Ask, Call, Keep
from motet.plan.spread import alike, spread
from motet.plan.traffic import traffic

MOST = 48
"""Iterations that are tried at most; most plans settle sooner."""
SETTLED = 0.002


@dataclass(frozen=True)
class Workload:
    """What a replica of a fragment does in an iteration: the busiest one, if they differ."""

    busy: Mapping[str, float]
    """By what it does: seconds."""
    waited: Mapping[str, float]
    """By whom, or for what it waits: seconds."""

    @property
    def seconds(self) -> float:
        return sum(self.busy.values())


@dataclass(frozen=True)
class Estimate:
    """What a plan is expected to do."""

    plan: Plan
    steps_per_second: float
    iteration_seconds: float
    parts: Mapping[str, Workload]
    """By fragment."""
    used: Mapping[str, float]
    """By what is scarce: which share of it is used, of the busiest one of its kind."""
    links: Mapping[str, float]
    """By link: bytes a second."""
    memory: Memory
    watts: float
    """By the machine's figures: modelled."""
    modelled: tuple[str, ...]
    """What of it was not measured."""
    bottleneck: str

    @property
    def word(self) -> str:
        return "measured" if not self.modelled else "modelled"

    @property
    def lag(self) -> Lag:
        lags = [link.lag for link in self.plan.links.values()]
        return "latest" if "latest" in lags else max((lag for lag in lags if isinstance(lag, int)), default=0)

    @property
    def steps_per_joule(self) -> float:
        return self.steps_per_second / self.watts if self.watts else 0.0


def estimate(graph: Graph, plan: Plan, book: Book, *, every_host: bool = False) -> Estimate:
    """What a plan that fits would do on the book's machine.

    Hosts on which the same happens are simulated once; with `every_host` each is, which takes longer and gives the
    same.
    """
    machine = book.machine
    seats = spread(plan, machine)
    kinds = {name: found[0].kind for name, found in seats.items()}
    schedules = schedules_of(graph, plan, kinds)
    workers, channels = workers_of(graph, plan, schedules, whole=True)
    hosts = dict.fromkeys(range(machine.hosts), 1) if every_host else alike(seats, machine.hosts)
    charges = Charges(graph, plan, book, seats, hosts, channels)
    kept = [each for each in workers if charges.is_simulated(each.fragment, each.index)]
    charges.company(kept)
    cores: dict[Hashable, float] = {("cores", host): float(machine.cores) for host in hosts}
    found = simulate(
        kept, charges.channels, MOST, charges, cores, settled=SETTLED, waking=book.waking, crowding=book.crowding
    )
    return _estimate(graph, plan, book, found, charges, kept, memory_of(graph, plan, schedules, seats, machine))


def floor(graph: Graph, plan: Plan, book: Book) -> float:
    """Seconds that no iteration of a plan can take less than: what its busiest replica does, what all of a host do on
    all its cores, or what they do one at a time for Python's lock."""
    seats = spread(plan, book.machine)
    schedules = schedules_of(graph, plan, {name: found[0].kind for name, found in seats.items()})
    _, channels = workers_of(graph, plan, schedules)
    charges = Charges(graph, plan, book, seats, alike(seats, book.machine.hosts), channels)
    alone = sum(each.replicas for each in plan.fragments.values()) == 1
    longest = cores = locked = 0.0
    for name, schedule in schedules.items():
        worker, host = Worker(name, name, 0, schedule), seats[name][0].host
        whole = alone and schedule.whole is not None
        uses = _uses(charges, worker, (schedule.whole,) if whole and schedule.whole else schedule.body, 1.0, whole)
        longest = max(longest, sum(use.seconds * count for use, count in uses))
        here = sum(seat.host == host for seat in seats[name])
        cores += here * sum(use.seconds * count * use.demand for use, count in uses if use.on == ("cores", host))
        locked += here * sum(use.seconds * count for use, count in uses if ("python", host) in use.locks)
    return max(longest, cores / book.machine.cores, locked)


def _uses(
    charges: Charges, worker: Worker, operations: Sequence[Any], count: float, whole: bool
) -> list[tuple[Use, float]]:
    """What a worker does in an iteration, and how often. What is read in a later round is left aside, since it is not
    sent in every round."""
    found: list[tuple[Use, float]] = []
    for each in operations:
        if isinstance(each, Rounds):
            found += _uses(charges, worker, each.body, count * (each.count // each.every), whole)
            continue
        if isinstance(each, Call):
            request = Iterate(each, 0, 1) if whole else Compute(each, ())
        elif isinstance(each, (Ask, Keep)):
            request = Consult(each, ())
        elif isinstance(each, (Send, Receive)) and not each.wire.carried:
            request = Put(each.wire, ()) if isinstance(each, Send) else Take(each.wire, (), ())
        else:
            continue
        found += [(use, count) for use in charges.request(worker, request)]
    return found


def _estimate(
    graph: Graph, plan: Plan, book: Book, found: Simulation, charges: Charges, workers: Sequence[Worker], memory: Memory
) -> Estimate:
    windows = {each.name: _window(found.logs[each.name]) for each in workers}
    iteration = max((after.time - before.time) / count for before, after, count in windows.values())
    parts: dict[str, Workload] = {}
    for each in workers:
        part = _part(*windows[each.name])
        if each.fragment not in parts or part.seconds > parts[each.fragment].seconds:
            parts[each.fragment] = part
    total = found.seconds or 1.0
    used = _shares(found, book.machine, total)
    links = {
        f"{row.link}: {row.source} -> {row.target}": row.bytes / iteration if iteration else 0.0
        for row in traffic(graph, plan, charges.programs, 1)
    }
    return Estimate(
        plan,
        graph.steps_per_iteration / iteration if iteration else float("inf"),
        iteration,
        parts,
        used,
        links,
        memory,
        _watts(book.machine, found, charges, total),
        tuple(sorted(charges.modelled)),
        _bottleneck(parts, used, iteration),
    )


def _window(logs: Sequence[Log]) -> tuple[Log, Log, int]:
    """The later half of what was seen, when everything has settled."""
    first = len(logs) // 2 if len(logs) > 2 else 0
    return logs[first], logs[-1], max(1, len(logs) - 1 - first)


def _part(before: Log, after: Log, count: int) -> Workload:
    def gained(new: Mapping[str, float], old: Mapping[str, float]) -> dict[str, float]:
        found = {name: (value - old.get(name, 0.0)) / count for name, value in new.items()}
        return dict(sorted(((name, value) for name, value in found.items() if value > 0), key=lambda item: -item[1]))

    return Workload(gained(after.busy, before.busy), gained(after.waited, before.waited))


def _shares(found: Simulation, machine: Machine, total: float) -> dict[str, float]:
    shares: dict[str, float] = {}
    for name, busy in found.used.items():
        kind = str(name[0]) if isinstance(name, tuple) else str(name)
        share = busy / total / (machine.cores if kind == "cores" else 1)
        shares[kind] = max(share, shares.get(kind, 0.0))
    return shares


def _watts(machine: Machine, found: Simulation, charges: Charges, total: float) -> float:
    """What all hosts draw: idle, and more while something is used."""
    watts = machine.hosts * (machine.idle_watts + sum(each.count * each.idle_watts for each in machine.devices))
    core = machine.device("cpu")
    for name, busy in found.used.items():
        if not isinstance(name, tuple):
            continue
        if name[0] == "cores" and core is not None:
            watts += charges.hosts[name[1]] * (core.watts - core.idle_watts) * busy / total
        elif name[0] == "device":
            device = machine.device(name[2])
            assert device is not None
            watts += charges.stands_for[name] * (device.watts - device.idle_watts) * busy / total
    return watts


def _bottleneck(parts: Mapping[str, Workload], used: Mapping[str, float], iteration: float) -> str:
    """Who or what keeps everybody from going faster."""
    busiest = max(parts, key=lambda name: parts[name].seconds)
    part = parts[busiest]
    share = part.seconds / iteration if iteration else 0.0
    crowded = [name for name in CROWDED if used.get(name, 0.0) > 0.97]
    if share < 0.9 and crowded:
        return CROWDED[crowded[0]]
    doing = next(iter(part.busy), "nothing")
    return f"{busiest}: {doing} ({part.busy.get(doing, 0.0) / iteration:.0%})" if iteration else busiest


CROWDED = {
    "cores": "the cores",
    "python": "Python's lock",
    "network": "the network",
    "device": "a device",
    "host": "the connection of a host and its devices",
    "devices": "the connection between devices",
}
"""What of all that is scarce may keep everybody from going faster, and what to call it."""
