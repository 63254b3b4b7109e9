"""How many bytes a plan keeps, on each device and each host, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from motet.flow.graph import Graph
from motet.plan.machine import Machine
from motet.plan.plan import Plan
from motet.plan.project import Rounds
from motet.plan.schedule import Call, Operation, Schedule
from motet.plan.spread import Seat


@dataclass(frozen=True)
class Memory:
    """Of the place that has the least left."""

    bytes: float
    limit: float
    where: str

    @property
    def fits(self) -> bool:
        return self.bytes <= self.limit


def memory_of(
    graph: Graph, plan: Plan, schedules: Mapping[str, Schedule], seats: Mapping[str, Sequence[Seat]], machine: Machine
) -> Memory:
    """What replicas hold and what their largest call reads and writes, summed over all that lie in one place."""
    held: dict[tuple[int, str, int], float] = {}
    for name, found in seats.items():
        fragment = plan.fragments[name]
        each = fragment_bytes(graph, schedules[name], fragment.cut.parts)
        if fragment.outside and graph.roles.replay:
            each += graph.variables[graph.roles.replay].nbytes()
        for seat in found:
            # The cores of a host have one memory, whatever JAX calls its devices.
            numbers = [0] * len(seat.devices) if seat.kind == "cpu" or seat.outside else seat.devices
            kind = "cpu" if seat.outside else seat.kind
            for number in numbers:
                held[seat.host, kind, number] = held.get((seat.host, kind, number), 0.0) + each
    (host, kind, number), most = max(held.items(), key=lambda item: item[1] / _limit(machine, item[0][1]))
    where = f"host {host}" if kind == "cpu" else f"{kind}:{number} of host {host}"
    return Memory(most, _limit(machine, kind), where)


def _limit(machine: Machine, kind: str) -> float:
    device = machine.device(kind)
    return machine.memory if kind == "cpu" or device is None else device.memory


def fragment_bytes(graph: Graph, schedule: Schedule, parts: int) -> float:
    """Of one device of a fragment that is cut into so many pieces."""

    def size(names: Iterable[str]) -> int:
        return sum(graph.variables[name].nbytes(parts) for name in names)

    state = set(schedule.state)
    calls = [schedule.whole] if schedule.whole else list(_calls(schedule.operations))
    largest = max((size({*each.kept, *each.donated, *each.writes} - state) for each in calls), default=0)
    return float(size(state) + largest)


def _calls(operations: Iterable[Operation]) -> Iterable[Call]:
    for each in operations:
        if isinstance(each, Call):
            yield each
        elif isinstance(each, Rounds):
            yield from _calls(each.body)  # type: ignore[arg-type]
