"""One process of a run: it traces the loop, makes what lies on its host, runs it in threads, and tells what happens.

What whoever leads the run may ask of it are its methods. All of them come back soon; what happens meanwhile is told as
events, which are plain values.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from motet.engine import adopt, cut, threads
from motet.engine.assemble import Assembly, assemble
from motet.engine.conditions import conditions
from motet.engine.cut import RunCut, WorkerShare
from motet.engine.hosts import group
from motet.engine.hosts import task as tasks
from motet.engine.hosts.crossing import Crossings
from motet.engine.hosts.failure import Failure
from motet.engine.hosts.gate import Gate
from motet.engine.hosts.post import Keys, Post
from motet.engine.hosts.showing import Showing
from motet.engine.packing import pack, unpack
from motet.engine.place import devices_for
from motet.engine.run import Outcome, Reporter, outcome
from motet.engine.usage import Usage
from motet.errors import Stopped
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Graph
from motet.flow.values import on_host
from motet.plan.hosts import hosts_of
from motet.plan.plan import Plan

Packed = tuple[dict[str, Any], dict[str, np.ndarray]]
"""A cut or a part of one, as plain values (see `packing.py`)."""
Event = tuple[Any, ...]
MAY_WAIT = ("status", "usage", "reported", "rows")
"""What is told of a run as it goes. Nobody waits for it, so that it is gathered for a moment: each answer takes time
from the cores that train."""
GATHERING = 0.1
"""Seconds of that moment."""


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    """What a method raises is its answer: an error of one process is none of the other's."""

    @functools.wraps(method)
    def answer(self: Host, *args: Any) -> Any:
        try:
            return method(self, *args)
        except BaseException as error:
            return Failure.of(self.index, error)

    return answer


class Host:
    """What lies on one host."""

    def __init__(self, interface: str = "127.0.0.1"):
        """Other hosts reach it over the network of `interface`."""
        self.interface, self.index = interface, 0
        self.stack = ExitStack()
        self.post: Post | None = None
        self.reporter: Reporter | None = None
        self.assembly: Assembly | None = None
        self.task: tasks.HostedRun | None = None
        self.gate: Gate | None = None
        self.showing: Showing | None = None
        self.thread: threading.Thread | None = None
        self._events: deque[Event] = deque()
        self._urgent = False
        """Whether somebody waits for one of them."""
        self._changed = threading.Condition()

    def describe(self) -> dict[str, Any]:
        """Who this is, before anything is sent to it."""
        return {"pid": os.getpid(), "machine": socket.gethostname(), "versions": tasks.versions()}

    @_told
    def offer(self) -> str:
        """Where the hosts may meet, if this is the first of them."""
        return group.offer(self.interface)

    @_told
    def join(self, index: int, address: str, count: int) -> None:
        """Meet the others, so that programs can span all hosts. It comes before anything that uses JAX's devices."""
        self.index = index
        group.join(address, count, index)

    @_told
    def prepare(self, index: int, packed: bytes, keys: tuple[bytes, bytes], final: bool) -> dict[str, Any]:
        """Trace and assemble what lies here -> the loop's fingerprint, the devices, and where to send messages."""
        self.index = index
        self._events.clear()
        self.task = task = tasks.unpack(packed)
        for name, value in task.configuration.items():
            if jax.config.values.get(name) != value:
                jax.config.update(name, value)
        self.stack.enter_context(conditions())
        graph, plan = task.trace()
        self.reporter = Reporter(graph, plan, _Unseen())
        self.gate = Gate(self.reporter, self._share)
        self.gate.final = final
        self.showing = Showing(self.reporter, lambda *shown: self.tell("shown", *self._learner(*shown)))
        self.reporter.visitors = [self.showing, self.gate]
        devices = devices_for(plan)
        found = {platform: len(each) for platform, each in devices.items()}
        told = {"fingerprint": fingerprint(graph), "devices": found, "address": ""}
        if told["fingerprint"] != task.fingerprint:
            return told  # whoever asks will say so
        self.post = Post(Keys(*keys), self.interface)
        self._assemble(graph, plan, devices, task, self.post)
        return {**told, "address": self.post.address}

    def _assemble(
        self, graph: Graph, plan: Plan, devices: Mapping[str, Any], task: tasks.HostedRun, post: Post
    ) -> None:
        assert self.reporter is not None and self.gate is not None and self.showing is not None
        reporter, showing = self.reporter, self.showing
        self.assembly = assembly = assemble(
            graph,
            plan,
            devices,
            task.settings,
            on_done=reporter.done,
            on_status=lambda who, what: self.tell("status", who, what),
            host=self.index,
            make=Crossings(graph, plan, self.index, post),
        )
        reporter.connect(assembly)
        reporter.collector = self  # type: ignore[assignment]
        reporter.rows = self._rows  # type: ignore[method-assign]
        if assembly.performers and assembly.whole:
            self.gate.ahead = lambda: showing.within(reporter.meeting.farthest, assembly.performers[0].ahead)

    @_told
    def begin(
        self,
        number: int,
        addresses: Mapping[int, str],
        start: Packed | None,
        exact: bool,
        until: int,
        every: int | None,
        reach: int | None,
    ) -> None:
        """As generation `number`, go on from a cut, or begin, and run to the end of iteration `until` - 1. Show the
        learner state `every` so many iterations, and wait with it after `reach` ones."""
        assert self.post is not None and self.assembly is not None and self.reporter is not None
        assert self.showing is not None
        self.showing.every, self.showing.reach = every, reach
        self.post.connect(number, {host: each for host, each in addresses.items() if host != self.index})
        group.greet(dict.fromkeys(each.home.place for each in self.assembly.performers if each.home.spans))
        if start is not None:
            (cut.load if exact else adopt.adopt)(self.assembly, unpack(*start))
        self.reporter.until = until
        self.thread = threading.Thread(target=self._run, name="motet host", daemon=True)
        self.thread.start()

    def events(self, patience: float) -> list[Event]:
        """What has happened since; waits so many seconds for something to happen."""
        with self._changed:
            self._changed.wait_for(lambda: self._events, patience)
            if self._events:
                self._changed.wait_for(lambda: self._urgent, GATHERING)
            found = list(self._events)
            self._events.clear()
            self._urgent = False
        return found

    @_told
    def hold(self) -> int:
        assert self.gate is not None
        return self.gate.hold()

    @_told
    def release(self, cut: int | None, until: int | None) -> None:
        assert self.gate is not None
        self.gate.release(cut, until)

    @_told
    def show(self) -> None:
        assert self.showing is not None
        self.showing.ask()

    @_told
    def allow(self, reach: int | None) -> None:
        assert self.showing is not None
        self.showing.allow(reach)

    def doing(self) -> dict[str, str]:
        """What each worker does now."""
        return dict(self.assembly.supervisor.doing) if self.assembly else {}

    @_told
    def good(self) -> tuple[int, Packed] | None:
        """The last learner state that was found to be finite, if it lies here."""
        guard = self.reporter.guard if self.reporter else None
        if guard is None or guard.good is None:
            return None
        return self._learner(*guard.good)

    def _learner(self, iteration: int, leaves: tuple[Any, ...]) -> tuple[int, Packed]:
        """The learner state after so many iterations, to be sent."""
        assert self.reporter is not None
        share = WorkerShare("learner", "", 0, {self.reporter.graph.roles.learner: leaves})
        return iteration, pack(RunCut(iteration, {"learner": share}))

    def stop(self) -> None:
        """End, wherever it is."""
        if self.assembly is not None:
            self.assembly.supervisor.stop()

    def close(self) -> None:
        """Let go of everything."""
        self.stop()
        if self.thread is not None:
            self.thread.join(10)
        if self.post is not None:
            self.post.close()
            self.post = None
        self.stack.close()

    def tell(self, *event: Any) -> None:
        awaited = self.showing is not None and self.showing.reach is not None  # the learner waits for leave to go on
        with self._changed:
            self._events.append(event)
            self._urgent |= awaited or event[0] not in MAY_WAIT
            if self._urgent or len(self._events) == 1:
                self._changed.notify_all()

    def _rows(self, first: int, rows: Any) -> None:
        """Rows of a program that many iterations are one call of. If it spans hosts, all of them have the same."""
        if self.index == 0:
            self.tell("rows", first, np.array(rows))

    def add(self, iteration: int, values: Mapping[str, tuple[Any, ...]]) -> None:
        """What a worker shows of an iteration: whoever leads puts the parts together."""
        self.tell("reported", iteration, {name: tuple(map(np.array, leaves)) for name, leaves in values.items()})

    def _share(self, iteration: int, share: WorkerShare, seconds: float) -> None:
        self.tell("share", iteration, pack(RunCut(iteration, {share.worker: share})), seconds)

    def _run(self) -> None:
        assert self.assembly is not None and self.reporter is not None and self.task is not None
        assembly, reporter, task = self.assembly, self.reporter, self.task
        threading.Thread(target=self._watch, args=(assembly,), name="motet host's watch", daemon=True).start()
        try:
            if assembly.performers:
                threads.drive(assembly, reporter.until)
            if reporter.guard is not None:
                for each in assembly.performers:
                    reporter.guard.look(reporter.until, each.worker.variables, force=True)
            ended = self._ended(outcome(assembly, reporter.until))
            assembly.close()  # environments say what they have counted when they are closed
            self.tell("ended", (replace(ended[0], left=(task.tells(task.env),)), ended[1]))
        except Stopped:
            self.tell("stopped")
        except BaseException as error:
            self.tell("failed", Failure.of(self.index, error))
        finally:
            assembly.close()

    def _watch(self, assembly: Assembly) -> None:
        """Tell what everybody does of late. A post that fails is a failure of all who wait for it."""
        usage = Usage(assembly)
        while not assembly.supervisor.stopped:
            time.sleep(0.2)
            if usage.due():
                self.tell("usage", usage.look())
            if self.post is not None and self.post.failure is not None:
                assembly.supervisor.fail(self.post.failure)

    def _ended(self, found: Outcome) -> tuple[Outcome, Packed]:
        """What came of it, and the learner state if its first replica lies here."""
        assert self.assembly is not None
        graph, plan = self.assembly.graph, self.assembly.plan
        learner, shares = graph.roles.learner, {}
        for each in self.assembly.performers:
            if learner in each.worker.variables and each.worker.index == 0:
                leaves = tuple(map(on_host, each.worker.variables[learner]))
                shares[each.worker.name] = WorkerShare(each.worker.name, each.worker.fragment, 0, {learner: leaves})
        mine = {name for name in plan.fragments if self.index in hosts_of(plan, name)}
        lanes = tuple(replace(lane, spans=tuple(map(_by_the_wall, lane.spans))) for lane in found.timeline)
        found = replace(found, variables={name: [] for name in mine}, timeline=lanes)
        return found, pack(RunCut(found.iterations, shares))


class _Unseen:
    """Nobody watches a host but whoever leads it, who is told otherwise."""

    def status(self, text: str) -> None: ...

    def rows(self, first: int, rows: np.ndarray) -> None: ...


def _by_the_wall(span: Any) -> Any:
    """A span by the clock that all machines share: each process has another zero of its own."""
    offset = time.time() - time.perf_counter()
    return span._replace(start=span.start + offset, end=span.end + offset)
