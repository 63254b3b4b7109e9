"""A driver on a virtual clock: unchanged workers, whose requests take the time that they are said to take.

Nothing is computed, and no time passes: what a worker asks is answered with a cost. So any plan of any loop can be
tried, on a machine that is here or on one that is not. Messages, lags and queues are those of every other driver, since
the workers are the same and the rules of wires too (`plan/protocol.py`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any, Protocol

from motet.engine.clock import Clock, Resources, Use
from motet.engine.requests import Compute, Consult, Done, Iterate, Put, Request, Stack, Take
from motet.engine.worker import Requests, Worker
from motet.errors import Stalled
from motet.plan.protocol import Wire, capacities

Channel = tuple[Wire, int, int]
"""A wire, the number of its sender and that of its receiver."""


class Costs(Protocol):
    """What requests and messages take."""

    def request(self, worker: Worker, request: Request) -> Sequence[Use]:
        """What the worker itself does, one thing after the other."""
        ...

    def message(self, channel: Channel) -> Sequence[Use]:
        """What a message does on its way, while its sender goes on."""
        ...


@dataclass(frozen=True)
class Log:
    """What one worker did until the end of an iteration, in seconds from the start."""

    time: float
    busy: Mapping[str, float]
    """By what it did."""
    waited: Mapping[str, float]
    """By whom or what it waited for."""


@dataclass(frozen=True)
class Simulation:
    """What came of it."""

    logs: Mapping[str, tuple[Log, ...]]
    """Worker -> a log at the end of each iteration, the first at the start."""
    used: Mapping[Hashable, float]
    """How many seconds each resource was used, of cores all together."""
    seconds: float

    def finished(self, name: str) -> list[float]:
        """When a worker finished each iteration."""
        return [log.time for log in self.logs[name][1:]]


def simulate(
    workers: Iterable[Worker],
    channels: Iterable[Channel],
    until: int,
    costs: Costs,
    cores: Mapping[Hashable, float] | None = None,
    *,
    settled: float = 0.0,
    waking: float = 0.0,
    crowding: float = 1.0,
) -> Simulation:
    """Take every worker to the end of iteration `until` - 1; with `settled`, only until the last few iterations of
    each took equally long, but for this share.

    Whoever waited for a message or a lock goes on so many seconds after it is there (`waking`). While all cores are
    busy each has a share of its speed (`crowding`).
    """
    resources = Resources(Clock(), cores or {}, crowding, HANDING * waking)
    return _Driver(list(workers), list(dict.fromkeys(channels)), until, costs, resources, settled, waking).drive()


@dataclass
class _Message:
    arrived: bool = False


@dataclass
class _State:
    """One worker while it runs."""

    worker: Worker
    requests: Requests
    logs: list[Log] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waited: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stuck: Put | Take | None = None
    since: float = 0.0
    done: bool = False


class _Driver:
    def __init__(
        self,
        workers: list[Worker],
        channels: list[Channel],
        until: int,
        costs: Costs,
        resources: Resources,
        settled: float,
        waking: float,
    ):
        self.costs, self.settled, self.steady, self.waking = costs, settled, False, waking
        self.resources, self.clock = resources, resources.clock
        self.room = capacities(wire for wire, _, _ in channels)
        self.queues: dict[Channel, deque[_Message]] = {channel: deque() for channel in channels}
        self.states = {(each.fragment, each.index): _State(each, each.run(until)) for each in workers}
        self.outgoing: dict[tuple[Wire, int], list[Channel]] = {}
        self.incoming: dict[tuple[Wire, int], list[Channel]] = {}
        for wire, sender, receiver in channels:
            self.outgoing.setdefault((wire, sender), []).append((wire, sender, receiver))
            self.incoming.setdefault((wire, receiver), []).append((wire, sender, receiver))

    def drive(self) -> Simulation:
        for state in self.states.values():
            self.go_on(state, None)
        self.clock.run(lambda: not self.steady)
        stuck = [state for state in self.states.values() if not state.done]
        if stuck and not self.steady:
            raise Stalled("; ".join(f"{each.worker.name} waits for {each.stuck}" for each in stuck))
        logs = {state.worker.name: tuple(state.logs) for state in self.states.values()}
        return Simulation(logs, self.resources.busy(), self.clock.now)

    def go_on(self, state: _State, answer: Any) -> None:
        try:
            request = state.requests.send(answer)
        except StopIteration:
            state.done = True
            return
        if isinstance(request, Done):
            state.logs.append(Log(self.clock.now, dict(state.busy), dict(state.waited)))
            self.steady = self.settled > 0 and all(_is_steady(each.logs, self.settled) for each in self.states.values())
            self.perform(state, request)
        elif isinstance(request, (Put, Take)):
            state.stuck, state.since = request, self.clock.now
            self.attempt(state)
        else:
            self.perform(state, request)

    def perform(self, state: _State, request: Request) -> None:
        """What takes time, and concerns nobody else. What makes the first state is left out: it comes once."""
        uses = self.costs.request(state.worker, request) if state.worker.started else ()

        def told(use: Use, seconds: float) -> None:
            state.busy[use.label] += use.seconds
            if seconds > use.seconds and use.on is not None:
                state.waited[_what(use)] += seconds - use.seconds

        answer = placeholder(request)
        self.resources.perform(uses, lambda: self.clock.at(self.clock.now, lambda: self.go_on(state, answer)), told)

    def attempt(self, state: _State) -> None:
        """Send or receive, if that is possible now."""
        request, worker = state.stuck, state.worker
        if request is None:
            return
        sends = isinstance(request, Put)
        channels = (self.outgoing if sends else self.incoming).get((request.wire, worker.index), ())
        late = [each for each in channels if not (self.has_room(each) if sends else self.has_message(each))]
        newest = isinstance(request, Take) and request.version is None
        if late and not newest:
            return
        state.stuck = None
        late_by = self.waking if self.clock.now > state.since and state.worker.started else 0.0
        state.waited[request.wire.target if sends else request.wire.source] += self.clock.now - state.since + late_by
        if sends:
            self.clock.at(self.clock.now + late_by, lambda: self.send(state, request, channels))
        elif late:
            self.go_on(state, {})  # nothing is newer than what it holds
        else:
            self.clock.at(self.clock.now + late_by, lambda: self.receive(state, request, channels))

    def receive(self, state: _State, request: Put | Take, channels: Sequence[Channel]) -> None:
        for channel in channels:
            self.queues[channel].popleft()
        self.perform(state, request)
        for wire, sender, _ in channels:
            self.wake(wire.source, sender)

    def send(self, state: _State, request: Put | Take, channels: Sequence[Channel]) -> None:
        messages = {channel: _Message() for channel in channels}
        for channel, message in messages.items():
            if channel[0].lag == "latest":
                self.queues[channel].clear()
            self.queues[channel].append(message)
        uses = self.costs.request(state.worker, request) if state.worker.started else ()

        def told(use: Use, seconds: float) -> None:
            state.busy[use.label] += use.seconds

        def sent() -> None:
            for channel, message in messages.items():
                way = self.costs.message(channel) if state.worker.started else ()
                self.resources.perform(way, lambda channel=channel, message=message: self.arrive(channel, message))
            self.clock.at(self.clock.now, lambda: self.go_on(state, None))

        self.resources.perform(uses, sent, told)

    def arrive(self, channel: Channel, message: _Message) -> None:
        message.arrived = True
        self.wake(channel[0].target, channel[2])

    def wake(self, fragment: str, index: int) -> None:
        state = self.states.get((fragment, index))
        if state is not None and state.stuck is not None:
            self.clock.at(self.clock.now, lambda: self.attempt(state))

    def has_room(self, channel: Channel) -> bool:
        return channel[0].lag == "latest" or len(self.queues[channel]) < self.room[channel[0]]

    def has_message(self, channel: Channel) -> bool:
        queue = self.queues[channel]
        return bool(queue) and queue[0].arrived


HANDING = 0.7
"""Of the time until a thread wakes up for a message: until it has a lock that it waited for, since then it has nothing
else to do. Chosen on the planner's tasks that are not held out."""
STEADY = 2
"""So many iterations of a worker must take equally long before they are taken for what is to come."""


def _is_steady(logs: Sequence[Log], share: float) -> bool:
    if len(logs) <= STEADY + 1:
        return False
    times = [log.time for log in logs[-STEADY - 1 :]]
    took = [after - before for before, after in pairwise(times)]
    return max(took) - min(took) <= share * max(took)


def _what(use: Use) -> str:
    """What somebody waits for who has to wait for `use`."""
    name = use.on[0] if isinstance(use.on, tuple) else use.on
    return str(name)


def placeholder(request: Request) -> Any:
    """An answer of the right form, without a value."""
    if isinstance(request, Iterate):
        return dict.fromkeys(request.call.donated, ()), [None]
    names = {Stack: "rows", Compute: "call.writes", Consult: "operation.node.writes", Take: "wire.vars"}
    return dict.fromkeys(attrgetter(names[type(request)])(request), ()) if type(request) in names else None
