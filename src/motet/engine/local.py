"""The local engine: a thread for each replica of each fragment, each with its own device.

Its serial twin runs the same programs in one thread, one replica at a time: for tests and debuggers. A plan of
one fragment needs neither; its iterations are compiled together and called many at a time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import first_ready
from motet.engine.channels import Wiring
from motet.engine.compile import CHUNK, Fused, asks, compile_program
from motet.engine.guard import Guard
from motet.engine.host import Stand
from motet.engine.inside import Exchange
from motet.engine.ledger import Ledger, Part
from motet.engine.place import Place, assign
from motet.engine.replica import Replica, Waits
from motet.engine.report import Collector, Columns
from motet.engine.shelf import Shelf
from motet.engine.supervise import Supervisor
from motet.errors import Diverged, Stalled, Stopped
from motet.flow.graph import Graph
from motet.flow.host import Opening
from motet.flow.values import is_key, on_host
from motet.plan.plan import Plan
from motet.plan.project import Program, project, wires

Mode = Literal["threads", "serial"]
GRACE = 5.0
"""Seconds that environments have to finish a step when a run is stopped."""


@dataclass(frozen=True)
class Limits:
    """How long a run waits, and how much it forgives."""

    timeout: float = 600.0
    """Seconds that one replica may wait for another."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker, may take."""
    restarts: int = 3
    """How often each replica's dead workers are started anew."""


class Watcher(Protocol):
    """Whoever wants to know how a run goes."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...


@dataclass(frozen=True)
class Flown:
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
    stores: Mapping[str, list[Mapping[str, tuple[Any, ...]]]]
    """Fragment -> the variables of each of its replicas."""
    flown: tuple[Flown, ...]
    parts: tuple[Part, ...]
    compile_seconds: float
    columns: Columns


@dataclass
class Run:
    """One run of a checked plan."""

    graph: Graph
    plan: Plan
    seed: int
    devices: Sequence[Any]
    watcher: Watcher
    mode: Mode = "threads"
    compiled: bool = True
    limits: Limits = field(default_factory=lambda: Limits())
    delay: Callable[[str], int | None] | None = None
    """Called by each replica before it goes on, with its name: tests use it to disturb the schedule. Where many
    iterations are one call, it may say how many at most."""
    latency: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the messages of a link take on their way, to see how a plan would do with slow links."""
    shelves: dict[str, Shelf] = field(default_factory=dict)
    """What each fragment has compiled. With those of another run of the same graph and fragments, nothing is compiled
    again."""
    programs: Mapping[str, Program] = field(init=False)

    def __post_init__(self) -> None:
        self.programs = project(self.graph, self.plan)
        self.supervisor = Supervisor(self.limits.timeout)
        self.halted: Stopped | None = None
        self.columns = Columns(self.graph)
        self.guard = Guard(self.graph, self.columns) if "learner" in self.graph.variables else None
        all_wires = [wire for p in self.programs.values() for wire, _ in wires((*p.start, *p.body))]
        self.recurring = {wire for p in self.programs.values() for wire, _ in wires(p.body)}
        self.wiring = Wiring(self.graph, self.plan, all_wires, self.supervisor, self.latency)
        parts = {var: self.plan.fragments[p.fragment].replicas for p in self.programs.values() for var in p.reports}
        self.collector = Collector(self.graph, self.columns, parts, self._rows)
        places = assign(self.plan, self.devices)
        for name, of_replicas in places.items():
            self.shelves.setdefault(name, Shelf(len(set(of_replicas))))
        self.exchanges: dict[str, Exchange] = {}
        self.replicas = [
            self._replica(name, index, place)
            for name, of_replicas in places.items()
            for index, place in enumerate(of_replicas)
        ]
        self.ledgers = {replica.name: Ledger(replica.name) for replica in self.replicas}

    def _replica(self, fragment: str, index: int, place: Place) -> Replica:
        program, count = self.programs[fragment], self.plan.fragments[fragment].replicas
        name = fragment if count == 1 else f"{fragment}[{index}]"

        def announce(what: str) -> None:
            self.supervisor.announce(name, what)
            self.watcher.status(f"{name}: {what}" if len(self.plan.fragments) > 1 else what)

        cut = self.plan.fragments[fragment].cut
        share = self.graph.num_envs // count
        workers = self.plan.fragments[fragment].workers
        limits = self.limits
        stand = Stand(Opening(index * share, share, self.seed, workers, limits.step_timeout, limits.restarts))
        stand.shared = self.plan.fragments[fragment].first_ready
        stand.inside = self._may_ask_from_inside()
        exchange = self.exchanges.setdefault(fragment, Exchange(lambda: self.supervisor.stopped))
        executable = compile_program(
            self.graph, program, place, index, cut, announce, stand, exchange, self.shelves[fragment], self.compiled
        )
        root = place.put(jax.random.key(self.seed)) if self.compiled else jax.random.key(self.seed)
        return Replica(name, fragment, index, place, executable, self.wiring, root, program.reports, self._report)

    def _may_ask_from_inside(self) -> bool:
        """Whether compiled programs may wait for environments. XLA has a thread for each core, and one that waits is
        missing elsewhere: if all of them might, a learner beside them would wait too."""
        asking = [
            self.plan.fragments[name].replicas
            for name, program in self.programs.items()
            if asks((*program.start, *program.body))
        ]
        alone = sum(fragment.replicas for fragment in self.plan.fragments.values()) == 1
        return alone or sum(asking) < (os.cpu_count() or 1)

    def __call__(self, iterations: int) -> Outcome:
        """Run to the end, or raise the first error. Whatever happens, no thread is left running."""
        whole = self._whole_loop()
        try:
            # Environments that are not compiled may hang, which must be seen from another thread.
            if self.mode == "serial" or (whole is not None and not whole.asks):
                self._run_serial(iterations)
            else:
                self._run_threads(iterations)
        except Diverged as error:
            raise Diverged(str(error), error.iteration, self.guard and self.guard.good) from None
        finally:
            for replica in self.replicas:
                replica.executable.stand.close()
                replica.executable.vault.close()
        return self.outcome(iterations)

    def _whole_loop(self) -> Fused | None:
        """The program that is all of the run, if there is one."""
        return self.replicas[0].executable.fused if len(self.replicas) == 1 else None

    # Two ways to drive the same replicas.

    def _run_serial(self, iterations: int) -> None:
        order = random.Random(self.seed)
        waiting: dict[str, Any] = {}
        alive = {replica.name: self._drive(replica, iterations) for replica in self.replicas}
        while alive:
            ready = [name for name in alive if name not in waiting or waiting[name].ready()]
            if not ready:
                raise self.supervisor.deadlock(waiting)
            name = order.choice(ready)
            try:
                waiting[name] = next(alive[name])
            except StopIteration:
                del alive[name]
                waiting.pop(name, None)

    def _run_threads(self, iterations: int) -> None:
        crews = self._crews()
        threads = [
            threading.Thread(target=self._thread, args=(crew, iterations), name=f"motet {crew[0].name}", daemon=True)
            for crew in crews
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) and not self.supervisor.stopped:
                for thread in threads:
                    thread.join(0.1 / len(threads))
                self._watch_environments()
        except BaseException as error:  # Ctrl-C included
            self.supervisor.fail(error)
            raise
        finally:
            self.supervisor.stop()
            self._leave(dict(zip(threads, crews, strict=True)))
        if error := self.supervisor.error or self.halted:
            raise error

    def _crews(self) -> list[list[Replica]]:
        """Who runs in which thread: each replica in its own, unless a fragment lets those of a device share one."""
        crews: dict[Any, list[Replica]] = {}
        for replica in self.replicas:
            shares = self.plan.fragments[replica.fragment].first_ready
            crews.setdefault((replica.fragment, replica.place) if shares else replica.name, []).append(replica)
        return list(crews.values())

    def _watch_environments(self) -> None:
        """An environment that is stepped in a replica's own thread and never returns can only be seen from outside."""
        now = time.monotonic()
        for replica in self.replicas:
            since, opening = replica.executable.stand.busy_since, replica.executable.stand.opening
            if since is not None and not opening.workers and now - since > opening.timeout:
                self.supervisor.fail(
                    Stalled(
                        f"{replica.name} has waited {opening.timeout:g} s for one step of its environments "
                        f"{opening.first} to {opening.first + opening.count - 1}. If a step may take that long, raise "
                        "`step_timeout`."
                    )
                )

    def _leave(self, threads: Mapping[threading.Thread, list[Replica]]) -> None:
        """Let every thread come to its end. One inside an environment that hangs is left: it dies with the process."""
        patient = time.monotonic() + GRACE
        for thread, crew in threads.items():
            while thread.is_alive():
                thread.join(0.05)
                stands = [replica.executable.stand for replica in crew]
                if time.monotonic() < patient or all(stand.busy_since is None for stand in stands):
                    continue
                if not stands[0].opening.workers:
                    break
                for stand in stands:
                    stand.close()  # its workers die, and the thread learns of it
                patient = time.monotonic() + GRACE

    def _thread(self, crew: list[Replica], iterations: int) -> None:
        replica = crew[0]
        try:
            with jax.default_device(replica.place.devices[0]):
                if len(crew) > 1:
                    first_ready.drive({each.name: self._drive(each, iterations) for each in crew}, self.supervisor)
                    return
                for wait in self._drive(replica, iterations):
                    self.supervisor.wait(replica.name, wait)
            self.supervisor.announce(replica.name, "done")
        except Stopped as stopped:
            self.halted = stopped
        except BaseException as error:
            error.add_note(f"(raised in {replica.name} on {replica.place.devices[0]}, iteration {replica.iteration})")
            self.supervisor.fail(error)

    def _drive(self, replica: Replica, iterations: int) -> Waits:
        return self.ledgers[replica.name].noting(self._iterate(replica, iterations))

    def _iterate(self, replica: Replica, iterations: int) -> Waits:
        yield from replica.start()
        if self._whole_loop() is not None:
            return self._iterate_many(replica, iterations)
        for _ in range(iterations):
            if self.delay is not None:
                self.delay(replica.name)
            if self.supervisor.stopped:
                raise Stopped(f"{replica.name} was stopped")
            yield from replica.iterate()
            self.ledgers[replica.name].iterated()
            self._look(replica)
        self._look(replica, force=True)

    def _iterate_many(self, replica: Replica, iterations: int) -> None:
        count, done = 1, 0
        while done < iterations:
            if self.supervisor.stopped:
                raise Stopped(f"{replica.name} was stopped")
            most = self.delay(replica.name) if self.delay is not None else None
            count = min(count, iterations - done, CHUNK, most or CHUNK)
            start = time.perf_counter()
            warm = replica.executable.fused is not None and replica.executable.fused.compiled is not None
            rows = replica.iterate_many(count)
            self._rows(done, rows)
            done += count
            self._look(replica, force=done == iterations)
            if warm:  # aim at a call every quarter of a second
                count = max(1, min(2 * count, int(0.25 * count / (time.perf_counter() - start))))

    # What becomes of what they report.

    def _report(self, replica: Replica, iteration: int, values: Mapping[str, tuple[Any, ...]]) -> None:
        self.collector.add(iteration, values)

    def _rows(self, first: int, rows: np.ndarray) -> None:
        if self.guard is not None:
            self.guard.rows(first, rows)
        self.watcher.rows(first, rows)

    def _look(self, replica: Replica, force: bool = False) -> None:
        if self.guard is not None and "learner" in replica.store:
            self.guard.look(replica.iteration, replica.store["learner"], force)
        if self.guard is not None and replica.store.get("replay") and (force or replica.iteration % CHUNK == 0):
            self.guard.look_at_replay(replica.store["replay"])

    def outcome(self, iterations: int) -> Outcome:
        stores: dict[str, list[Mapping[str, tuple[Any, ...]]]] = {}
        for replica in self.replicas:
            stores.setdefault(replica.fragment, []).append(replica.store)
        flown: dict[tuple[str, str, str], Flown] = {}
        for (wire, _, _), channel in self.wiring.channels.items():
            if wire not in self.recurring:
                continue
            name = (wire.link, wire.source, wire.target)
            old = flown.get(name, Flown(*name, 0, 0, {}))
            lags = self.wiring.seen[wire].lags or old.lags
            flown[name] = Flown(*name, old.messages + channel.messages, old.bytes + channel.bytes, lags)
        seconds = max(replica.executable.clock.compiling for replica in self.replicas)
        parts = tuple(ledger.part() for ledger in self.ledgers.values() if len(self.replicas) > 1)
        return Outcome(iterations, stores, tuple(flown.values()), parts, seconds, self.columns)


def gather(graph: Graph, outcome: Outcome, name: str) -> Any:
    """A variable's final value with all environments in one piece, on the host."""
    var = graph.variables[name]
    for stores in outcome.stores.values():
        if all(name in store for store in stores):
            leaves = []
            for position, axis in enumerate(var.axes):
                parts = [on_host(store[name][position]) for store in stores]
                concatenate = jnp.concatenate if is_key(parts[0]) else np.concatenate
                leaves.append(parts[0] if axis is None else concatenate(parts, axis))
            return var.unpack(tuple(leaves))
    raise KeyError(name)


def virtual_devices(count: int) -> None:
    """Make one CPU appear as `count` devices. It must come before anything else uses JAX's devices."""
    jax.config.update("jax_num_cpu_devices", count)
