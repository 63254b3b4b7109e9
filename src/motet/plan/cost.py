"""What the operations of a schedule cost: measured where somebody measured it, else modelled from what is computed.

A profile holds what was measured, of one loop on one machine; a `Book` answers from it for any cut, and says of every
figure whether it was measured or modelled. Nothing here runs anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from motet.flow.graph import Graph, Node
from motet.flow.work import Work, node_work
from motet.plan.board import board_at, on_board
from motet.plan.keys import asked, call_key, message_key, signature, split, terms
from motet.plan.machine import Connection, Machine
from motet.plan.project import Rounds, Statement
from motet.plan.protocol import Wire
from motet.plan.schedule import Call

Points = tuple[tuple[float, float], ...]
"""(size, seconds), smallest size first."""


@dataclass(frozen=True)
class Figure:
    """Seconds, and where they are from."""

    seconds: float
    measured: bool
    demand: float = 1.0
    """How many cores are busy meanwhile."""
    beyond: bool = False
    """Whether it follows from measurements at several sizes, and this one lies beyond them all."""

    @property
    def word(self) -> str:
        return "measured" if self.measured else "modelled"


@dataclass(frozen=True)
class Fit:
    """Measured at a few sizes, and taken to grow evenly between and beyond them."""

    points: Points
    demand: float = 1.0

    def at(self, size: float) -> Figure:
        """Measured if it was at this size, or at a smaller and a larger one; beyond them, or in proportion to the only
        one, it is a model."""
        exact = [seconds for known, seconds in self.points if known == size]
        if exact:
            return Figure(exact[0], True, self.demand)
        if len(self.points) > 1:
            start, slope = line(self.points)
            seconds, inside = max(start + slope * size, 0.05 * self.points[0][1]), is_between(self.points, size)
            return Figure(seconds, inside, self.demand, not inside)
        known, seconds = next(iter(self.points))
        return Figure(seconds * (FIXED + (1 - FIXED) * size / known), False, self.demand)


FIXED = 0.2
"""Of a call that was measured at one size: which share is taken not to depend on it."""


def is_between(points: Points, size: float) -> bool:
    """Whether a size is one of those that were measured, or lies between two of them."""
    return points[0][0] <= size <= points[-1][0]


def line(points: Points) -> tuple[float, float]:
    """Least squares, of relative errors: (start, slope), neither below 0."""
    weights = [1 / max(seconds, 1e-12) ** 2 for _, seconds in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    joint = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    slope = max(0.0, joint / spread) if spread else 0.0
    start = mean_y - slope * mean_x
    return (start, slope) if start >= 0 else (0.0, mean_y / mean_x if mean_x else 0.0)


@dataclass(frozen=True)
class Profile:
    """What was measured of one loop on one machine."""

    calls: Mapping[str, Fit] = field(default_factory=dict)
    """By `call_key`; the size is the number of environments of one piece."""
    environments: Mapping[str, Fit] = field(default_factory=dict)
    """By the number of worker processes: one step of so many host environments, with a moment between two."""
    rested: Mapping[str, Fit] = field(default_factory=dict)
    """The same with more between two steps: processes and threads have gone to sleep meanwhile."""
    locked: Mapping[str, float] = field(default_factory=dict)
    """By the number of worker processes: for which share of a step Python's lock is held; 1 where nobody knows."""
    replay: Mapping[str, Fit] = field(default_factory=dict)
    """By node: what a replay outside of XLA takes."""
    messages: Mapping[str, Fit] = field(default_factory=dict)
    """By `message_key`: to hand over or to take in what goes over a wire, by its bytes."""
    send: Points = ()
    """By bytes: to hand over a message of any wire."""
    receive: Points = ()
    stack: Points = ()
    """By bytes: to put the rounds of a loop together."""
    asking: float = 0.0
    """Seconds around a step of host environments that is asked for between two calls."""
    handling: float = 0.0
    """Seconds of the interpreter for each request."""
    calling: Points = ()
    """By arrays that go in and come out: to call a program that does nothing."""
    reporting: Mapping[str, float] = field(default_factory=dict)
    """Seconds after an iteration, of whoever holds the `LEARNER` and of `OTHERS`."""
    waking: float = 0.0
    """Seconds until a thread that waited for a message goes on."""
    crowding: float = 0.0
    """How fast a core is while all are busy, as a share; 0: nobody has measured it."""
    about: Mapping[str, str] = field(default_factory=dict)
    """What was measured, when, and what could not be."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Profile:
        data = json.loads(text)

        def fits(name: str) -> dict[str, Fit]:
            return {key: Fit(_points(fit["points"]), fit["demand"]) for key, fit in data[name].items()}

        points = {name: _points(data[name]) for name in ("send", "receive", "stack", "calling")}
        measured = {name: fits(name) for name in ("calls", "environments", "rested", "messages", "replay")}
        return Profile(**{**data, **points, **measured})


def _points(data: Sequence[Sequence[float]]) -> Points:
    return tuple((float(size), float(seconds)) for size, seconds in data)


@dataclass(frozen=True)
class Book:
    """What everything costs, for one loop on one machine."""

    graph: Graph
    machine: Machine
    profile: Profile = Profile()
    here: bool = True
    """Whether the profile was measured on this machine, and not on another whose environments are as fast."""
    _works: dict[str, Work] = field(default_factory=dict, compare=False, repr=False)
    _ratios: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    _terms: dict[str, Mapping[str, Fit]] = field(default_factory=dict, compare=False, repr=False)

    def call(self, kind: str, call: Call, parts: int, shards: int, whole: bool) -> Figure:
        """One run of a call by one of `parts` pieces, on `shards` devices at once; without the environments' time."""
        found = self.profile.calls.get(call_key(kind, call, shards, whole))
        if found is not None:
            return found.at(self.graph.num_envs / parts)
        done = signature(call.body)
        known = self._known(kind)
        if shards == 1 and known.keys() >= set(split(done)):  # others did all of it, in other calls
            figures = [known[term].at(self.graph.num_envs / parts) for term in split(done)]
            seconds = sum(each.seconds for each in figures)
            return Figure(seconds, False, sum(each.seconds * each.demand for each in figures) / (seconds or 1.0))
        seconds = self.modelled(kind, done, parts) * self._correction(kind) + self.collectives(kind, call, shards)
        if kind == "cpu":
            seconds += asked(call.body) * self.asking + (0.0 if whole else self.calling(self.leaves(call)))
        return Figure(seconds, False)

    def leaves(self, call: Call) -> int:
        """How many arrays go into a call and come out of it."""
        names = (*call.donated, *call.kept, *call.writes)
        return sum(len(self.graph.variables[name].avals) for name in names)

    def _known(self, kind: str) -> Mapping[str, Fit]:
        """By node or loop: what it takes with all environments, from the calls that were measured. What is left of a
        call for several that were not measured apart is shared out as the model says."""
        if kind not in self._terms:
            known: dict[str, Fit] = {}
            size = float(self.graph.num_envs)
            for (where, shards, *_, done), fit in sorted(self._measured(), key=lambda each: len(split(each[0][-1]))):
                seconds = dict(fit.points).get(size)
                missing = [term for term in split(done) if term not in known]
                if (where, shards) != (kind, "x1") or seconds is None or not missing:
                    continue
                apart = sum(known[term].at(size).seconds for term in split(done) if term in known)
                model = {term: self.modelled(kind, term, 1) for term in missing}
                left = max(seconds - apart, LEFT_LEAST * seconds)
                for term, modelled in model.items():
                    known[term] = Fit(((size, left * modelled / sum(model.values())),), fit.demand)
            self._terms[kind] = known
        return self._terms[kind]

    def _measured(self) -> list[tuple[list[str], Fit]]:
        """The calls of the profile: their keys taken apart."""
        return [(key.split(" ", 3), fit) for key, fit in self.profile.calls.items()]

    def modelled(self, kind: str, done: str, parts: float) -> float:
        """From what a call of this signature computes and what the device can do; its collectives left aside."""
        device = self.machine.device(kind)
        assert device is not None, f"{self.machine.name} has no device of the kind {kind}"
        work = self._work(done).share(parts)
        moved = max(work.flops / (device.peak * device.efficiency), work.bytes / device.bandwidth)
        return device.launch + max(moved, work.operations * device.latency)

    def collectives(self, kind: str, call: Call, shards: int) -> float:
        """What it takes to combine results over the batch, wherever some are written."""
        if shards == 1:
            return 0.0
        device = self.machine.device(kind)
        spans = device is not None and shards > device.count
        way = self.machine.connections["network" if spans else "devices"]
        return sum(rounds * combined(way, shards, nbytes) for rounds, nbytes in self._partial(call.body))

    def step(self, environments: float, workers: int, rested: bool = False) -> Figure:
        """One step of so many host environments; `rested` if something else was done before it for a while."""
        fits = self.profile.rested if rested and self.profile.rested else self.profile.environments
        found = self._step(environments, workers, fits)
        return replace(found, measured=found.measured and self.here)

    def locked(self, workers: int) -> float:
        """For which share of a step of host environments Python's lock is held."""
        return self.profile.locked.get(str(workers), 0.0 if workers else 1.0)

    def _step(self, environments: float, workers: int, fits: Mapping[str, Fit]) -> Figure:
        if str(workers) in fits:
            return fits[str(workers)].at(environments)
        alone = fits["0"].at(environments) if "0" in fits else Figure(environments * UNKNOWN_STEP, False)
        if not workers:
            return alone
        # As many processes as were not tried: each has its share, and to reach them takes as long as it does elsewhere.
        tried = [(int(each), fit.at(environments)) for each, fit in fits.items() if each != "0"]
        extra = max(0.0, tried[0][1].seconds - alone.seconds / min(tried[0][0], self.machine.cores)) if tried else 1e-4
        return Figure(alone.seconds / workers + extra, False, float(workers))

    def remembering(self, node: Node, outside: str) -> Figure:
        """What a replay outside of XLA takes for a node; on a board what the board does, once it is asked."""
        found = self.profile.replay.get(f"{outside} {node.name}")
        if found is not None:
            return found.at(self.graph.num_envs)
        board = board_at(self.machine, outside)
        if board is not None:
            return Figure(on_board(self.graph, node, board[0]), False)
        moved = sum(self.graph.variables[var].nbytes() for var in node.writes if var != self.graph.roles.replay)
        return Figure(50e-6 + moved / 1e9, False)

    def message(self, what: str, wire: Wire, ends: int, nbytes: float) -> Figure:
        """To `send` to so many, or to `receive` from them, so many bytes together."""
        found = self.profile.messages.get(message_key(what, wire, ends))
        if found is not None:
            return found.at(nbytes)
        same = message_key(what, wire, 0)[1:]
        tried = [(int(key.partition(" ")[0]), fit) for key, fit in self.profile.messages.items() if key.endswith(same)]
        if not tried:
            one = self.moving(what, nbytes / max(1, ends))
            return replace(one, seconds=ends * one.seconds)
        near, fit = min(tried, key=lambda each: abs(each[0] - ends))
        return Figure(fit.at(nbytes).seconds * (FIXED + (1 - FIXED) * ends / near), False)

    def moving(self, what: str, nbytes: float) -> Figure:
        """To `send`, `receive` or `stack` so many bytes."""
        points: Points = getattr(self.profile, what)
        if points:
            start, slope = line(points)
            return Figure(start + slope * nbytes, is_between(points, nbytes))
        return Figure(self.machine.connections["process"].seconds(nbytes), False)

    @property
    def handling(self) -> float:
        return self.profile.handling or HANDLING

    @property
    def asking(self) -> float:
        return self.profile.asking or ASKING

    def reporting(self, who: str) -> float:
        """After an iteration."""
        return self.profile.reporting.get(who, REPORTING)

    @property
    def waking(self) -> float:
        return self.profile.waking or WAKING

    @property
    def crowding(self) -> float:
        return self.profile.crowding or 1.0

    def calling(self, arrays: int) -> float:
        """To call a program with so many arrays that go in and come out."""
        start, slope = line(self.profile.calling) if self.profile.calling else CALLING
        return start + slope * arrays

    def _work(self, done: str) -> Work:
        """Of a signature, with all environments in one piece."""
        if done not in self._works:
            nodes = {node.name: node for node in self.graph.nodes()}
            total = Work()
            for name, count, inner in terms(done):
                total += self._work(inner).times(count) if inner else node_work(nodes[name])
            self._works[done] = total
        return self._works[done]

    def _correction(self, kind: str) -> float:
        """How much longer the calls that were measured on this kind of device took than the model says."""
        if kind not in self._ratios:
            measured = modelled = 0.0
            for (where, shards, _, done), fit in self._measured():
                if (where, shards) == (kind, "x1"):
                    measured += sum(seconds for _, seconds in fit.points)
                    modelled += sum(self.modelled(kind, done, self.graph.num_envs / size) for size, _ in fit.points)
            self._ratios[kind] = measured / modelled if modelled else 1.0
        return self._ratios[kind]

    def _partial(self, statements: Sequence[Statement]) -> list[tuple[int, int]]:
        """(how often, bytes) of each result over the batch that the statements write."""
        found = []
        for each in statements:
            if isinstance(each, Rounds):
                found += [(each.count * rounds, nbytes) for rounds, nbytes in self._partial(each.body)]
            elif isinstance(each, Node):
                written = [self.graph.variables[var] for var in each.writes if self.graph.variables[var].partial]
                if written or each.statistic:
                    found.append((1, sum(var.nbytes() for var in written) + 8))
        return found


HANDLING, ASKING, REPORTING, WAKING = 15e-6, 40e-6, 50e-6, 30e-6
"""Seconds of the interpreter for a request, around a step of host environments and after an iteration, and until a
thread wakes up, that nobody has measured."""
CALLING = (10e-6, 0.3e-6)
"""Seconds to call a program, and more for each array, that nobody has measured."""
LEFT_LEAST = 0.1
"""The least share of a call that is left for what was not measured apart from it."""
UNKNOWN_STEP = 20e-6
"""Seconds of a step of one host environment that nobody has measured."""


def combined(way: Connection, shards: int, nbytes: float) -> float:
    """A sum over shards in a ring: each sends all but its own part twice."""
    return 2 * (shards - 1) / shards * nbytes / way.bandwidth + 2 * math.ceil(math.log2(shards)) * way.latency
