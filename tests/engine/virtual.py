"""A driver on a virtual clock: unchanged workers, whose requests take the time that they are said to take."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from motet.engine.requests import Compute, Consult, Done, Iterate, Put, Request, Stack, Take
from motet.engine.worker import Worker
from motet.plan.protocol import Wire, capacities

Cost = Callable[[Worker, Request], float]
Channels = Iterable[tuple[Wire, int, int]]  # wire, sender, receiver


def simulate(workers: Iterable[Worker], channels: Channels, until: int, cost: Cost) -> dict[str, list[float]]:
    """When each worker finished each iteration."""
    room = capacities(wire for wire, _, _ in channels)
    queues: dict[tuple[Wire, int, int], list[float]] = {key: [] for key in channels}
    named = {worker.name: worker for worker in workers}
    runs = {name: worker.run(until) for name, worker in named.items()}
    asked = {name: next(run) for name, run in runs.items()}
    finished: dict[str, list[float]] = {name: [] for name in named}
    ready, stuck = [(0.0, name) for name in named], list[tuple[float, str]]()
    while ready:
        now, name = heapq.heappop(ready)
        worker, request = named[name], asked[name]
        if isinstance(request, (Put, Take)):
            puts = isinstance(request, Put)
            mine = [key for key in queues if key[0] == request.wire and key[1 if puts else 2] == worker.index]
            if any(len(queues[key]) >= room[key[0]] if puts else not queues[key] for key in mine):
                stuck.append((now, name))
                continue
            for key in mine:
                queues[key].append(now) if puts else (now := max(now, queues[key].pop(0)))
        elif isinstance(request, Done):
            finished[name] += [now] * (request.iteration - len(finished[name]))
        else:
            now += cost(worker, request)
        try:
            asked[name] = runs[name].send(placeholder(request))
            heapq.heappush(ready, (now, name))
        except StopIteration:
            pass
        while stuck:
            since, other = stuck.pop()
            heapq.heappush(ready, (max(since, now), other))
    assert not stuck, f"nobody can go on: {stuck}"
    return finished


def placeholder(request: Request) -> Any:
    """An answer of the right form, without a value."""
    if isinstance(request, Iterate):
        return dict.fromkeys(request.call.donated, ()), [None]
    names = {Stack: "rows", Compute: "call.writes", Consult: "operation.node.writes", Take: "wire.vars"}
    return dict.fromkeys(attrgetter(names[type(request)])(request), ()) if type(request) in names else None
