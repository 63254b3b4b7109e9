"""A plan that is timed: its real workers, one after the other in one thread, with environments that stand still."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from motet.engine import serial
from motet.engine.adopt import adopt
from motet.engine.assemble import Assembly, Settings, assemble
from motet.engine.blank import Pace, leave_out, limit
from motet.engine.compiled import CHUNK
from motet.engine.cut import RunCut, take
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter, Watcher
from motet.engine.stopwatch import Samples, Seen, Stopwatch, Timed, calls_of, mostly, note, watch_of
from motet.errors import BadOption
from motet.flow.graph import Graph, Loop
from motet.flow.host import HostCall, HostStep, Leaves, Pool
from motet.plan.keys import asked, call_key
from motet.plan.machine import kind_named
from motet.plan.plan import Plan
from motet.plan.schedule import Call

PREFILL = 64
"""Rounds before the first iteration, of a loop that would have more: enough to draw from."""
GRACE = 2.0
"""Seconds by which a program that is all of a plan may come late: the run may want it, and it tells most of others."""
QUICK = 0.1
"""Seconds of an iteration that there always is time for."""
DONE = ("compute", "send", "receive", "replay")
"""What counts as something that a worker does."""
LONG = 0.15
"""Seconds that a call of many iterations is to take, so that its beginning does not count. In a run it takes longer
still (see `Performer`)."""


class Late(BadOption):
    """There was no time for a plan, which says nothing against it."""


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


class Trial:
    """A plan that is to be timed.

    `wanted` are the keys of the calls to be timed (see `call_key`). All others of an iteration are answered with zeros:
    nothing need be compiled for them. The first state is made as always, since environments may take longer from a
    state in which they never are.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        devices: Mapping[str, Any],
        wanted: frozenset[str],
        watcher: Callable[[Reporter], Watcher] | None = None,
    ):
        self.graph, self.plan, self.wanted, self.devices = graph, plan, wanted, devices
        self.turn: Performer | None = None
        """Whose turn it was last."""
        self.late: list[str] = []
        """Calls that there was no time to compile."""
        self.each = 0.0
        """Seconds of an iteration, roughly."""
        self.spent = Timed(0.0, 0.0, 0)
        reporter = Reporter(graph, plan, _Nobody())
        reporter.watcher = watcher(reporter) if watcher else reporter.watcher
        reporter.until = 2**31
        self.counted = _Counted(reporter)
        self.assembly = assemble(graph, plan, devices, Settings(), on_done=self.counted.done)
        reporter.connect(self.assembly)
        step = next((node for node in graph.nodes() if node.host is not None and not node.host.opens), None)
        seen = Seen()
        for each in self.assembly.performers:
            each.ledger.recorder = Stopwatch(seen=seen)
            if step is not None and step.host is not None:
                each.environments.pool = Still(graph, step.host, each.environments.opening.count)
            known = set(map(id, self._keyed(each, wanted)))
            leave_out(each, [call for call in calls_of(each.worker.schedule.body) if id(call) not in known])

    def start(self, cut: RunCut | None = None) -> None:
        """Make the first state, or take that of another plan of the same loop, which is quicker."""
        try:
            if cut is not None:
                adopt(self.assembly, cut)
        except BadOption:  # its replay lies elsewhere
            cut = None
        self._drive(0)

    def cut(self) -> RunCut:
        """The state, for others to start from."""
        return RunCut(0, {each.worker.name: take(each) for each in self.assembly.performers})

    def compile(self, until: float = math.inf, pace: Pace | None = None) -> None:
        """Run every call. Those that will not be compiled at `until`, by the clock of `time.perf_counter`, are left
        out; but never a program that is all of the plan if nothing was compiled before, since the run may need it, and
        without it nothing is known of the others."""
        pace, began = pace or Pace(), time.perf_counter()
        whole = self._whole
        if whole is not None and pace.equations and began + pace.expected(whole) > until + GRACE:
            raise Late("no time was left")
        limited = [
            (each, limit(each, self._keyed(each, self.wanted), until, pace)) for each in self.assembly.performers
        ]
        self._drive(1)
        compiled = time.perf_counter()
        if whole is not None:
            pace.note(whole, compiled - began)
        else:
            first = compiled - began - sum(call.took for _, calls in limited for call in calls)
            if first > QUICK and compiled + first / 2 > until + GRACE:  # not all of it comes again
                raise Late(f"no time was left, the first iteration took {first:.1f} s")
        self._drive(2)
        self.each = time.perf_counter() - compiled
        for each, calls in limited:
            late = [call.call for call in calls if call.is_late]
            self.late += [call.label for call in late]
            self.wanted -= {self._key(each, call) for call in late}

    @property
    def level(self) -> float:
        """Seconds of an iteration, as far as they are known. Steps of environments are part of the call that asks."""
        if self.counted.whole:
            return mostly(self.counted.whole)
        watches = [watch_of(each) for each in self.assembly.performers]
        took = [times for watch in watches for (what, _), times in watch.seconds.items() if times and what in DONE]
        return sum(mostly(times) * len(times) for times in took) / max(1, self.spent.count)

    def forget(self) -> None:
        """Give the state's memory back; the trial starts again. What is compiled stays."""
        for each in self.assembly.performers:
            each.worker.variables, each.worker.iteration, each.worker.started = {}, 0, False
        for channel in self.assembly.channels.values():
            channel.queue.clear()
            channel.recent.clear()

    def warm_up(self) -> None:
        """Before anything is timed."""
        self._drive(self.iteration + 2)
        self.counted.most = _many(self.assembly, self.counted)
        _reset(self.assembly, self.counted)

    @property
    def asks(self) -> float:
        """How many steps of host environments an iteration asks for from inside of one program; 0: it does not."""
        call = self._whole
        return asked(call.body) if call is not None else 0.0

    def time_asking(self, pool: Pool, step: float, seconds: float) -> float:
        """How much longer a step takes if a program asks these environments, and not such as stand still; by itself it
        takes `step` seconds."""
        (performer,) = self.assembly.performers
        still, many, known = performer.environments.pool, self.counted.most, len(self.counted.whole)
        without = self.counted.whole[-1]
        performer.environments.pool = pool
        self.counted.most = max(1, min(many, int(seconds / (without + self.asks * step))))
        try:
            self._look_away(True)
            self._go_on(seconds / 4)
            self._look_away(False)
            self._go_on(seconds)
        finally:
            performer.environments.pool, self.counted.most = still, many
        found = self.counted.whole[known:]
        del self.counted.whole[known:]
        return max(0.0, statistics.mean(found) - without) / self.asks

    def time_for(self, seconds: float) -> None:
        """Go on for so many seconds, in which everything is timed: but for a quarter of them at first, when others have
        just been at work and nothing is where it will be."""
        waited = [dict(each.ledger.waiting) for each in self.assembly.performers]
        self._look_away(True)
        self._go_on(seconds / 4)
        self._look_away(False)
        for each, before in zip(self.assembly.performers, waited, strict=True):
            each.ledger.waiting.clear()
            each.ledger.waiting.update(before)
        began, cpu, first = time.perf_counter(), time.process_time(), self.iteration
        self._go_on(seconds)
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        self.spent += Timed(wall, used, self.iteration - first)

    def _go_on(self, seconds: float) -> None:
        began, first = time.perf_counter(), self.iteration
        while self.iteration == first or time.perf_counter() - began < seconds:
            self._drive(self.iteration + self.counted.most)

    def _look_away(self, really: bool) -> None:
        self.counted.looks_away = really
        for each in self.assembly.performers:
            watch_of(each).looks_away = really

    def note(self, samples: Samples) -> None:
        """Add what was seen."""
        timed = replace(self.spent, whole=self.counted.whole, reporting=self.counted.reporting)
        note(self.graph, self.plan, self.assembly, samples, timed, self.wanted)

    @property
    def _whole(self) -> Call | None:
        """The call that is all of the plan, if there is one."""
        return self.assembly.performers[0].worker.schedule.whole if self.assembly.whole else None

    @property
    def iteration(self) -> int:
        return self.assembly.performers[0].worker.iteration

    def lies_on(self, performer: Performer) -> tuple[str, ...]:
        """What a worker needs, as "cpu:1": its devices, or what else holds its replay."""
        place = performer.home.place
        return (place.store,) if place.store else tuple(map(self._named, place.devices))

    @property
    def at_work(self) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...]]:
        """On what whoever was at work last lies, and what it was to compute; nothing if that was nobody."""
        return (self.lies_on(self.turn), tuple(self.items(self.turn))) if self.turn is not None else ((), ())

    @property
    def worked(self) -> set[str]:
        """Everything that something was done on. Who was asked for zeros alone says nothing of its devices."""
        done = [each for each in self.assembly.performers if each.home.place.store or self.items(each)]
        return {name for each in done for name in self.lies_on(each)}

    def items(self, performer: Performer) -> list[tuple[str, float]]:
        """The calls of a worker that are to be timed: their keys, and how many environments they have."""
        fragment = self.plan.fragments[performer.worker.fragment]
        keys = [self._key(performer, call) for call in self._keyed(performer, self.wanted)]
        if self._whole is not None:
            keys = [self._key(performer, self._whole, whole=True)]
        return [(key, self.graph.num_envs / fragment.cut.parts) for key in dict.fromkeys(keys)]

    def close(self) -> None:
        self.assembly.close()

    def _drive(self, until: int) -> None:
        serial.drive(self.assembly, until, self._note_turn)

    def _note_turn(self, performer: Performer) -> None:
        self.turn = performer

    def _named(self, device: Any) -> str:
        number = next(list(found).index(device) for found in self.devices.values() if device in found)
        return f"{kind_named(device.platform)}:{number}"

    def _keyed(self, performer: Performer, keys: frozenset[str]) -> list[Call]:
        return [call for call in calls_of(performer.worker.schedule.body) if self._key(performer, call) in keys]

    def _key(self, performer: Performer, call: Call, whole: bool = False) -> str:
        shards = self.plan.fragments[performer.worker.fragment].shards
        return call_key(kind_named(performer.home.place.devices[0].platform), call, shards, whole)


class _Nobody:
    """A watcher that does nothing."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...


@dataclass
class _Counted:
    """How many iterations are to be one call, where many are, and how many were done."""

    reporter: Reporter
    most: int = 1
    looks_away: bool = False
    before: int = 0
    whole: list[float] = field(default_factory=list)
    """Seconds of an iteration, by each call of many."""
    reporting: dict[str, list[float]] = field(default_factory=dict)
    """By worker: seconds after each iteration."""

    def done(self, performer: Performer, done: Done) -> int | None:
        performer.pace = self.most
        watch = performer.ledger.recorder
        if done.rows is not None and isinstance(watch, Stopwatch):
            took = [times.pop() for (_, name), times in watch.seconds.items() if name.startswith("iteration") and times]
            self.whole += [each / max(1, done.iteration - self.before) for each in took]
        elif not performer.worker.whole:
            start = time.perf_counter()
            self.reporter.done(performer, done)
            took = [] if self.looks_away else [time.perf_counter() - start]
            self.reporting.setdefault(performer.worker.name, []).extend(took)
        self.before = done.iteration
        return self.most if performer.worker.whole else None


def _reset(assembly: Assembly, counted: _Counted) -> None:
    counted.reporting.clear()
    counted.whole.clear()
    for each in assembly.performers:
        watch_of(each).clear()
        each.ledger.waiting.clear()


def _many(assembly: Assembly, counted: _Counted) -> int:
    """How many iterations of a fused plan to run at once."""
    if not assembly.whole:
        return 1
    counted.whole.clear()
    serial.drive(assembly, assembly.performers[0].worker.iteration + 3)
    return max(1, min(CHUNK, int(LONG / max(min(counted.whole), 1e-6))))
