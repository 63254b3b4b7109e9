"""One run: drive an assembly to its end, report on the way, and say what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import serial, threads
from motet.engine.assemble import Assembly, Programs, Settings, assemble
from motet.engine.guard import Guard
from motet.engine.ledger import Account
from motet.engine.meeting import Meeting
from motet.engine.perform import Performer
from motet.engine.report import Collector, Columns
from motet.engine.requests import Done
from motet.engine.timeline import Lane
from motet.errors import Diverged, Stopped
from motet.flow.graph import Graph
from motet.flow.values import is_key, on_host
from motet.plan.plan import Plan

Mode = Literal["threads", "serial"]
Delay = Callable[[str], int | None]
"""Called by each worker before it goes on, with its name. Where many iterations are one call, it may say how many at
most."""


class Watcher(Protocol):
    """Whoever wants to know how a run goes."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...


class Visitor(Protocol):
    """Whoever looks at workers between two of their iterations. What it does must not change what is computed.

    Every worker calls from its own thread. `reporter.meeting` knows an iteration at which all can be seen, and
    `reporter.end_at` ends the run there; whoever asks for the one to do the other holds `reporter.meeting.lock`.
    """

    def limit(self, iteration: int) -> int | None:
        """After so many iterations: how many at most may come before the next visit; None: any number."""
        ...

    def visit(self, performer: Performer, done: Done) -> None:
        """The worker's variables are whole; they are its own again when this returns."""
        ...


@dataclass(frozen=True)
class LinkUse:
    """What went over one link between two fragments, all iterations together."""

    link: str
    source: str
    target: str
    messages: int
    bytes: int
    lags: Mapping[int, int]
    """How many values were that many iterations old when they were read."""
    crossing: int = 0
    """How many of the bytes went from one host to another."""


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    iterations: int
    variables: Mapping[str, list[Mapping[str, tuple[Any, ...]]]]
    """Fragment -> what each of its replicas holds."""
    links: tuple[LinkUse, ...]
    accounts: tuple[Account, ...]
    compile_seconds: float
    timeline: tuple[Lane, ...] = ()
    """What each replica did in a few early iterations."""
    left: tuple[Any, ...] = ()
    """What the environments of other processes had to tell when they were closed, for whoever asked (`Task.tells`)."""


@dataclass
class Reporter:
    """What becomes of what workers report: rows for people, and a look at the numbers."""

    graph: Graph
    plan: Plan
    watcher: Watcher
    delay: Delay | None = None
    until: int = 0
    visitors: Sequence[Visitor] = ()
    on_told: Callable[[], None] = lambda: None
    """Called when the watcher has been told rows, before anybody tells it more."""

    def __post_init__(self) -> None:
        self.meeting = Meeting()
        self.columns = Columns(self.graph)
        self.guard = Guard(self.graph, self.columns) if self.graph.roles.learner else None
        self.collector: Collector | None = None
        self.stopped: Callable[[], bool] = lambda: False

    def connect(self, assembly: Assembly) -> None:
        """Learn who reports what."""
        parts = {
            var: self.plan.fragments[name].replicas
            for name, each in assembly.schedules.items()
            for var, _ in each.reports
        }
        self.collector = Collector(self.graph, self.columns, parts, self.rows)
        self.stopped = lambda: assembly.supervisor.stopped
        self.meeting = Meeting(each.worker.name for each in assembly.performers)

    def status(self, who: str, what: str) -> None:
        self.watcher.status(f"{who}: {what}" if len(self.plan.fragments) > 1 else what)

    def done(self, performer: Performer, done: Done) -> int | None:
        """Between two iterations of a worker -> how many at most it may do next; 0: the run ends here."""
        worker = performer.worker
        self.meeting.arrive(worker.name, done.iteration)
        if done.rows is not None:
            self.rows(done.iteration - len(done.rows), done.rows)
        elif done.reported and self.collector is not None:
            self.collector.add(done.iteration - 1, done.reported)
        if self.guard is not None and done.iteration:
            self.guard.look(done.iteration, worker.variables, force=done.iteration >= self.until)
        for visitor in self.visitors:
            visitor.visit(performer, done)
        if done.iteration >= self.until:
            return 0
        if self.stopped():
            raise Stopped(f"{worker.name} was stopped")
        limits: list[int | None] = [
            self.until - done.iteration,
            self.guard.most if self.guard is not None else None,
            *(each.limit(done.iteration) for each in self.visitors),
        ]
        limits += [self.delay(worker.name)] if self.delay is not None else []
        return min(limit for limit in limits if limit is not None)

    def end_at(self, iteration: int) -> None:
        """End the run after so many iterations, which no worker has passed (see `Meeting.soonest`)."""
        with self.meeting.lock:
            self.until = min(self.until, iteration)

    def rows(self, first: int, rows: np.ndarray) -> None:
        if self.guard is not None:
            self.guard.rows(first, rows)
        self.watcher.rows(first, rows)
        self.on_told()


def run(
    graph: Graph,
    plan: Plan,
    devices: Mapping[str, Sequence[Any]],
    watcher: Watcher,
    iterations: int,
    settings: Settings | None = None,
    *,
    mode: Mode = "threads",
    delay: Delay | None = None,
    programs: Programs | None = None,
) -> Outcome:
    """Run a checked plan to the end, or raise the first error. Whatever happens, no thread is left running."""
    reporter = Reporter(graph, plan, watcher, delay)
    assembly = prepare(graph, plan, devices, reporter, settings or Settings(), programs)
    return finish(assembly, reporter, iterations, mode)


def prepare(
    graph: Graph,
    plan: Plan,
    devices: Mapping[str, Sequence[Any]],
    reporter: Reporter,
    settings: Settings,
    programs: Programs | None = None,
) -> Assembly:
    """An assembly whose workers report to `reporter`."""
    assembly = assemble(
        graph, plan, devices, settings, on_done=reporter.done, on_status=reporter.status, programs=programs
    )
    reporter.connect(assembly)
    return assembly


def finish(assembly: Assembly, reporter: Reporter, until: int, mode: Mode = "threads") -> Outcome:
    """Drive an assembly to the end of iteration `until` - 1, or to where the reporter ends it, and close it."""
    reporter.until = until
    call = assembly.schedules[assembly.performers[0].worker.fragment].whole if assembly.whole else None
    try:
        # Environments that are not compiled may hang, which must be seen from another thread.
        in_turn = mode == "serial" or (call is not None and not call.asks)
        (serial if in_turn else threads).drive(assembly, until)
    except Diverged as error:
        good = reporter.guard and reporter.guard.good
        raise Diverged(str(error), error.iteration, good) from None
    finally:
        assembly.close()
    return outcome(assembly, reporter.until)


def outcome(assembly: Assembly, iterations: int) -> Outcome:
    held: dict[str, list[Mapping[str, tuple[Any, ...]]]] = {}
    for each in assembly.performers:
        held.setdefault(each.worker.fragment, []).append(each.worker.variables)
    parts = sum(fragment.replicas for fragment in assembly.plan.fragments.values())
    accounts = tuple(each.ledger.account() for each in assembly.performers if parts > 1)
    seconds = max(each.home.compiling for each in assembly.performers)
    lanes = tuple(each.ledger.recorder.lane(each.worker.name, each.worker.fragment) for each in assembly.performers)
    return Outcome(iterations, held, _links(assembly), accounts, seconds, lanes)


def _links(assembly: Assembly) -> tuple[LinkUse, ...]:
    """What every link carried; its wires between the same two fragments are counted together."""
    found: dict[tuple[str, str, str], LinkUse] = {}
    for (wire, _, _), channel in assembly.channels.items():
        if wire in assembly.recurring:
            name = (wire.link, wire.source, wire.target)
            old = found.get(name, LinkUse(*name, 0, 0, {}))
            crossing = old.crossing + (channel.bytes if channel.crosses else 0)
            found[name] = LinkUse(*name, old.messages + channel.messages, old.bytes + channel.bytes, {}, crossing)
    lags: dict[tuple[str, str, str], Counter[int]] = {}
    for each in assembly.performers:
        for wire, ages in each.ports.ages.items():
            lags.setdefault((wire.link, wire.source, wire.target), Counter()).update(ages)
    return tuple(replace(use, lags=dict(sorted(lags.get(name, Counter()).items()))) for name, use in found.items())


def gather(graph: Graph, outcome: Outcome, name: str) -> Any:
    """A variable's final value with all environments in one piece, on the host."""
    var = graph.variables[name]
    for replicas in outcome.variables.values():
        if all(name in each for each in replicas):
            leaves = []
            for position, axis in enumerate(var.axes):
                parts = [on_host(each[name][position]) for each in replicas]
                concatenate = jnp.concatenate if is_key(parts[0]) else np.concatenate
                leaves.append(parts[0] if axis is None else concatenate(parts, axis))
            return var.unpack(tuple(leaves))
    raise KeyError(name)


def virtual_devices(count: int) -> None:
    """Make one CPU appear as `count` devices. It must come before anything else uses JAX's devices."""
    jax.config.update("jax_num_cpu_devices", count)
