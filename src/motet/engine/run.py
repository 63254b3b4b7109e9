"""One run: drive an assembly to its end, report on the way, and say what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import serial, threads
from motet.engine.assemble import Assembly, Programs, Settings, assemble
from motet.engine.guard import Guard
from motet.engine.ledger import Account
from motet.engine.perform import Performer
from motet.engine.report import Collector, Columns
from motet.engine.requests import Done
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


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    iterations: int
    variables: Mapping[str, list[Mapping[str, tuple[Any, ...]]]]
    """Fragment -> what each of its replicas holds."""
    links: tuple[LinkUse, ...]
    accounts: tuple[Account, ...]
    compile_seconds: float


@dataclass
class Reporter:
    """What becomes of what workers report: rows for people, and a look at the numbers."""

    graph: Graph
    plan: Plan
    watcher: Watcher
    delay: Delay | None = None
    until: int = 0

    def __post_init__(self) -> None:
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

    def status(self, who: str, what: str) -> None:
        self.watcher.status(f"{who}: {what}" if len(self.plan.fragments) > 1 else what)

    def done(self, performer: Performer, done: Done) -> int | None:
        """Between two iterations of a worker -> how many at most it may do next."""
        worker = performer.worker
        if done.rows is not None:
            self.rows(done.iteration - len(done.rows), done.rows)
        elif done.reported and self.collector is not None:
            self.collector.add(done.iteration - 1, done.reported)
        last = done.iteration >= self.until
        if self.guard is not None and done.iteration:
            self.guard.look(done.iteration, worker.variables, force=last)
        if last:
            return None
        if self.stopped():
            raise Stopped(f"{worker.name} was stopped")
        return self.delay(worker.name) if self.delay is not None else None

    def rows(self, first: int, rows: np.ndarray) -> None:
        if self.guard is not None:
            self.guard.rows(first, rows)
        self.watcher.rows(first, rows)


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
    """Drive an assembly to the end of iteration `until` - 1, and close it."""
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
    return outcome(assembly, until)


def outcome(assembly: Assembly, iterations: int) -> Outcome:
    held: dict[str, list[Mapping[str, tuple[Any, ...]]]] = {}
    for each in assembly.performers:
        held.setdefault(each.worker.fragment, []).append(each.worker.variables)
    accounts = tuple(each.ledger.account() for each in assembly.performers if len(assembly.performers) > 1)
    seconds = max(each.home.compiling for each in assembly.performers)
    return Outcome(iterations, held, _links(assembly), accounts, seconds)


def _links(assembly: Assembly) -> tuple[LinkUse, ...]:
    """What every link carried; its wires between the same two fragments are counted together."""
    found: dict[tuple[str, str, str], LinkUse] = {}
    for (wire, _, _), channel in assembly.channels.items():
        if wire in assembly.recurring:
            name = (wire.link, wire.source, wire.target)
            old = found.get(name, LinkUse(*name, 0, 0, {}))
            found[name] = LinkUse(*name, old.messages + channel.messages, old.bytes + channel.bytes, {})
    lags: dict[tuple[str, str, str], Counter[int]] = {}
    for each in assembly.performers:
        for wire, ages in each.ports.ages.items():
            lags.setdefault((wire.link, wire.source, wire.target), Counter()).update(ages)
    return tuple(
        LinkUse(*name, use.messages, use.bytes, dict(sorted(lags.get(name, Counter()).items())))
        for name, use in found.items()
    )


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
