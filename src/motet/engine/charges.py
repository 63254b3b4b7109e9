"""What each request and message of a plan takes on a machine, in uses of its cores, devices and links.

What is taken to be so: to call a program takes Python's lock for as long as to call one that does nothing, and to know
of its end takes it again. On a CPU it keeps as many cores busy as it did when it was measured; one on an accelerator
has it to itself, and whoever asked waits for it; so has a replay a board, to which its batches go and from which they
come over the host's connection. Environments that are stepped in a thread hold Python's lock while
that thread computes. Shards move in step, so the first stands for all. A message between hosts waits for the receiver's
network; what goes to many hosts goes down a tree.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from motet.engine.clock import Use
from motet.engine.requests import Compute, Consult, Done, Iterate, Put, Request, Stack, Take
from motet.engine.virtual import Channel
from motet.engine.worker import Worker
from motet.flow.graph import Graph, Node
from motet.plan.board import board_at, crossing
from motet.plan.cost import Book, Figure
from motet.plan.keys import asked, reports_as
from motet.plan.plan import Fragment, Plan
from motet.plan.project import Program, project
from motet.plan.protocol import Wire
from motet.plan.route import nbytes, pieces
from motet.plan.schedule import Ask, Call
from motet.plan.spread import Seat


class Charges:
    """The costs of one plan."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        book: Book,
        seats: Mapping[str, Sequence[Seat]],
        hosts: Mapping[int, int],
        channels: Sequence[Channel],
    ):
        self.graph, self.plan, self.book, self.seats, self.hosts = graph, plan, book, seats, hosts
        self.modelled: set[str] = set()
        """What was asked for and nobody had measured."""
        self.stands_for: dict[Hashable, int] = {}
        """For how many devices one stands, on all hosts: its program's shards, and hosts that are alike."""
        self._known: dict[Hashable, tuple[Use, ...]] = {}
        self._keep: list[Any] = []
        self.channels = [each for each in dict.fromkeys(channels) if self._is_simulated(each)]
        self._outgoing: dict[tuple[Wire, int], list[Channel]] = {}
        self._incoming: dict[tuple[Wire, int], list[Channel]] = {}
        for channel in dict.fromkeys(channels):
            self._outgoing.setdefault((channel[0], channel[1]), []).append(channel)
            self._incoming.setdefault((channel[0], channel[2]), []).append(channel)

    @cached_property
    def programs(self) -> dict[str, Program]:
        return project(self.graph, self.plan)

    def is_simulated(self, fragment: str, index: int) -> bool:
        return self.seats[fragment][index].host in self.hosts

    def _is_simulated(self, channel: Channel) -> bool:
        wire, sender, receiver = channel
        return self.is_simulated(wire.source, sender) and self.is_simulated(wire.target, receiver)

    def request(self, worker: Worker, request: Request) -> Sequence[Use]:
        what = _subject(request)
        key = (worker.fragment, worker.index, type(request), id(what))
        if key not in self._known:
            self._keep.append(what)  # or another could come to have its number
            self._known[key] = tuple(self._charge(worker, request))
        return self._known[key]

    def message(self, channel: Channel) -> Sequence[Use]:
        if channel not in self._known:
            self._known[channel] = tuple(self._way(channel))
        return self._known[channel]

    def _charge(self, worker: Worker, request: Request) -> list[Use]:
        seat = self.seats[worker.fragment][worker.index]
        if isinstance(request, Done):
            if worker.whole:  # of many iterations at once, it hardly counts
                return []
            who = reports_as(self.graph, worker.schedule.state)
            self._assumed(who in self.book.profile.reporting, "reports")
            return [self._python(worker, seat, self.book.reporting(who), "report")]
        if isinstance(request, (Compute, Iterate)):
            return self._call(worker, seat, request.call, isinstance(request, Iterate))
        if isinstance(request, Consult):
            node = request.operation.node
            if isinstance(request.operation, Ask):
                self._assumed(self.book.profile.asking, "asking environments")
                asking = self._python(worker, seat, self.book.asking, "ask")
                return [asking, *self._steps(worker, seat, 1)]
            return self._remembered(worker, seat, node)
        if isinstance(request, Stack):
            parts = self.plan.fragments[worker.fragment].cut.parts
            size = sum(self.graph.variables[name].nbytes(parts) for name in request.rows)
            figure = self._noted("stack", self.book.moving("stack", size))
            return [self._python(worker, seat, figure.seconds, f"stack {request.loop.name}")]
        assert isinstance(request, (Put, Take))
        return [self._carried(worker, seat, request)]

    def _remembered(self, worker: Worker, seat: Seat, node: Node) -> list[Use]:
        """What a replay outside of XLA does: in the asking thread, or on a board, which does one thing at a time."""
        figure = self._noted(f"replay {node.name}", self.book.remembering(node, seat.outside))
        found = board_at(self.book.machine, seat.outside)
        if found is None:
            return [self._python(worker, seat, figure.seconds, node.name)]
        board, number = found
        device = ("device", seat.host, board.kind, number)
        self.stands_for[device] = self.hosts[seat.host]
        there, back = (0, 0) if figure.measured else crossing(self.graph, node)  # what was timed crosses too
        return [
            self._python(worker, seat, 0.0, node.name),
            *self._crossing(seat, there, node.name),
            Use(figure.seconds, device, label=node.name),
            *self._crossing(seat, back, node.name),
        ]

    def _crossing(self, seat: Seat, size: int, label: str) -> list[Use]:
        """So many bytes between a host's memory and one of its devices, for which somebody waits."""
        if not size:
            return []
        self.modelled.add("connections of devices")
        way = self.book.machine.connections["host"]
        return [Use(size / way.bandwidth, ("host", seat.host), label=label), Use(way.latency, label=label)]

    def _call(self, worker: Worker, seat: Seat, call: Call, whole: bool) -> list[Use]:
        cut, host = self.plan.fragments[worker.fragment].cut, seat.host
        figure = self.book.call(seat.kind, call, cut.parts, cut.shards, whole)
        self._noted(f"{worker.fragment}: {call.label}", figure)
        label, rounds = call.label, asked(call.body)
        if seat.kind == "cpu":
            busy, devices = min(figure.demand, float(self.book.machine.cores)), float(len(seat.devices))
            demand = busy if figure.measured or figure.beyond else max(busy, devices)
            calling = 0.0 if whole else min(self.book.calling(self.book.leaves(call)), CALLING_MOST * figure.seconds)
            thread = self._thread(worker, seat)
            uses = [Use(figure.seconds - calling, ("cores", host), demand, thread, label)]
            uses += self._steps(worker, seat, rounds) if rounds else []
            if whole:
                return uses
            self._assumed(self.book.profile.calling, "calling programs")
            return [self._python(worker, seat, calling, label), *uses, self._back_in_python(seat, thread, label)]
        device = ("device", host, seat.kind, seat.devices[0])
        everywhere = self.book.machine.hosts if seat.everywhere else self.hosts[host]
        self.stands_for[device] = len(seat.devices) * everywhere
        uses = [self._python(worker, seat, 0.0, label), Use(figure.seconds, device, label=label)]
        return uses + (self._steps(worker, seat, rounds) if rounds else [])

    def _steps(self, worker: Worker, seat: Seat, rounds: float) -> list[Use]:
        """So many steps of host environments."""
        fragment = self.plan.fragments[worker.fragment]
        count = self.graph.num_envs / fragment.replicas
        alone = sum(each.replicas for each in self.plan.fragments.values()) == 1
        rested = is_rested(fragment, rounds, alone)
        figure = self._noted("environments", self.book.step(count, fragment.workers, rested))
        demand, seconds = min(figure.demand, float(self.book.machine.cores)), figure.seconds * rounds
        if fragment.workers or figure.demand > 1.5:
            locks = () if fragment.workers else self._thread(worker, seat)
            return [Use(seconds, ("cores", seat.host), demand, locks, "environments")]
        return self._taking_turns(worker, seat, seconds, demand)

    def _taking_turns(self, worker: Worker, seat: Seat, seconds: float, demand: float) -> list[Use]:
        """Steps in the worker's own thread, which has Python's lock for a share of the time."""
        share, turns = self.book.locked(0), max(1, math.ceil(seconds / TURN))
        share = 1.0 if share > ALL else share
        thread, cores = self._thread(worker, seat), ("cores", seat.host)
        locked = Use(share * seconds / turns, cores, demand, (*thread, ("python", seat.host)), "environments")
        free = Use((1 - share) * seconds / turns, cores, demand, thread, "environments")
        return ([locked, free] if share < 1 else [locked]) * turns

    def _carried(self, worker: Worker, seat: Seat, request: Put | Take) -> Use:
        puts = isinstance(request, Put)
        ends = (self._outgoing if puts else self._incoming).get((request.wire, worker.index), ())
        if seat.everywhere:  # each host sees to its own
            others = self.seats[request.wire.target if puts else request.wire.source]
            ends = [each for each in ends if others[each[2] if puts else each[1]].host == seat.host]
        label = f"{'send' if puts else 'receive'} {request.wire.link}"
        if not ends:
            return self._python(worker, seat, 0.0, label)
        size = sum(map(self.size, ends))
        figure = self.book.message("send" if puts else "receive", request.wire, len(ends), size)
        return self._python(worker, seat, self._noted(label, figure).seconds, label)

    def _python(self, worker: Worker, seat: Seat, seconds: float, label: str) -> Use:
        """What Python does, in which one thread of a process goes on at a time."""
        locks = (*self._thread(worker, seat), ("python", seat.host))
        self._assumed(self.book.profile.handling, "what Python does between requests")
        return Use(seconds + self.book.handling, ("cores", seat.host), 1.0, locks, label)

    def _back_in_python(self, seat: Seat, thread: tuple[Hashable, ...], label: str) -> Use:
        """When a program has ended, whoever called it needs Python's lock again to know of it."""
        return Use(0.0, ("cores", seat.host), 1.0, (*thread, ("python", seat.host)), label)

    def _thread(self, worker: Worker, seat: Seat) -> tuple[Hashable, ...]:
        """Replicas that share a thread take turns in it."""
        shared = self.plan.fragments[worker.fragment].first_ready
        return (("thread", seat.host, worker.fragment, seat.devices),) if shared else ()

    def _way(self, channel: Channel) -> list[Use]:
        """What a message does between its sender and its receiver."""
        wire, sender, receiver = channel
        source, target = self.seats[wire.source][sender], self.seats[wire.target][receiver]
        size, ways = self.size(channel), self.book.machine.connections
        if source.host != target.host and not (source.everywhere or target.everywhere):
            count, network = self.hosts[source.host], ways["network"]
            reached = {seat.host for seat in self.seats[wire.target]} - {source.host}
            hops = math.ceil(math.log2(1 + len(reached)))
            self.modelled.add("the network")
            return [
                Use(count * hops * size / network.bandwidth, ("network", target.host)),
                Use(hops * network.latency),
            ]
        if (source.kind, source.devices) == (target.kind, target.devices) or source.kind == target.kind == "cpu":
            return []
        name = "host" if "cpu" in (source.kind, target.kind) else "devices"
        self.modelled.add("connections of devices")
        return [Use(size / ways[name].bandwidth, (name, target.host)), Use(ways[name].latency)]

    def size(self, channel: Channel) -> int:
        """The bytes of one message."""
        wire, sender, receiver = channel
        vars = tuple(self.graph.variables[name] for name in wire.vars)
        senders, receivers = (self.plan.fragments[name].replicas for name in (wire.source, wire.target))
        return nbytes(vars, pieces(vars, sender, senders, receiver, receivers))

    def company(self, workers: Sequence[Worker]) -> None:
        """Note what nobody has measured of workers that run beside each other: one alone waits for nobody."""
        places = [self.seats[each.fragment][each.index].host for each in workers]
        if len(places) > 1:
            self._assumed(self.book.profile.waking, "waking threads")
        if len(places) > len(set(places)) and self.book.machine.cores > 1:
            self._assumed(self.book.profile.crowding, "cores that are all busy")

    def _assumed(self, measured: object, what: str) -> None:
        """A constant is used where nothing was measured."""
        self.modelled |= set() if measured else {what}

    def _noted(self, what: str, figure: Figure) -> Figure:
        if not figure.measured:
            self.modelled.add(what)
        return figure


TURN = 2e-3
"""Seconds after which environments that are stepped in a thread let others have Python's lock: between two steps,
or at the latest after the 5 ms that the interpreter lets one thread have it while others want it."""
ALL = 0.9
"""The share of a step with Python's lock that is as good as all of it."""
CALLING_MOST = 0.8
"""The largest share of a call that calling it can be."""


def is_rested(fragment: Fragment, rounds: float, alone: bool) -> bool:
    """Whether environments have gone to sleep before a step: before one that a worker asks for; a program that asks for
    many does not do much between two of them, but processes whose cores others use meanwhile are as after a rest."""
    return rounds <= 1 or (not alone and fragment.workers > 0)


def _subject(request: Request) -> Any:
    """What of a request says how long it takes."""
    if isinstance(request, Done):
        return Done
    for name in ("call", "operation", "wire", "loop"):
        if hasattr(request, name):
            return getattr(request, name)
    raise AssertionError(request)
