"""A driver in forty lines: workers are driven unchanged by whoever answers them. Here time is only added up."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

import motet
from motet.engine.rehearse import workers_of
from motet.engine.requests import Compute, Consult, Done, Put, Request, Take
from motet.engine.virtual import Channel, simulate
from motet.engine.worker import Worker
from motet.plan.plan import Plan
from motet.plan.protocol import capacities
from tests.engine.test_virtual import Given
from tests.laws.cases import ALGORITHMS, traced


def drive(
    workers: Iterable[Worker], channels: Iterable[Channel], until: int, seconds: Mapping[str, float]
) -> dict[str, list[float]]:
    """When each worker finished each iteration, where a call takes the `seconds` of its fragment."""
    named = {worker.name: worker for worker in workers}
    held = dict.fromkeys(channels, 0)
    room = capacities(wire for wire, _, _ in held)
    runs = {name: worker.run(until) for name, worker in named.items()}
    asked: dict[str, Any] = {name: next(run) for name, run in runs.items()}
    finished: dict[str, list[float]] = {name: [] for name in named}
    ready, stuck = [(0.0, name) for name in named], deque[str]()
    while ready:
        now, name = heapq.heappop(ready)
        worker, request = named[name], asked[name]
        if isinstance(request, Put | Take):
            sends = isinstance(request, Put)
            mine = [each for each in held if each[0] == request.wire and each[1 if sends else 2] == worker.index]
            if any(held[each] == room[each[0]] if sends else not held[each] for each in mine):
                stuck.append(name)
                continue
            for each in mine:
                held[each] += 1 if sends else -1
            while stuck:  # somebody may go on now
                heapq.heappush(ready, (now, stuck.popleft()))
        elif isinstance(request, Done):
            finished[name] += [now] * (request.iteration > 0)
        elif isinstance(request, Compute | Consult) and worker.started:
            now += seconds[worker.fragment]
        try:
            asked[name] = runs[name].send(nothing(request))
            heapq.heappush(ready, (now, name))
        except StopIteration:
            pass
    assert not stuck, f"nobody can go on: {[*stuck]}"
    return finished


def nothing(request: Request) -> Any:
    """An answer of the right form, without a value."""
    if isinstance(request, Put | Done):
        return None
    names = request.wire.vars if isinstance(request, Take) else getattr(request, "rows", ())
    if isinstance(request, Compute | Consult):
        names = request.call.writes if isinstance(request, Compute) else request.operation.node.writes
    return dict.fromkeys(names, ())


SECONDS = {"actors": 2.0, "learner": 3.0, "environments": 0.5, "replay": 0.25, "workers": 2.0, "server": 1.0}


@pytest.mark.parametrize(
    ("algorithm", "plan"),
    [
        ("a2c", motet.coarse(2)),
        ("a2c", motet.coarse(2, lag=1)),
        ("a2c", motet.coarse(2, lag=3)),
        ("a2c", motet.fine(2)),
        ("dqn", motet.central(2)),
        ("dqn-prioritised", motet.pearl(2, lag=1, prefetch=2)),
    ],
)
def test_another_driver_comes_to_the_same_times(algorithm: str, plan: Plan) -> None:
    graph, until = traced(ALGORITHMS[algorithm], plan), 7
    found = simulate(*workers_of(graph, plan), until, Given(SECONDS))
    ours = drive(*workers_of(graph, plan), until, SECONDS)
    assert {name: len(times) for name, times in ours.items()} == dict.fromkeys(found.logs, until)
    for name, times in ours.items():
        assert times == pytest.approx(found.finished(name))
