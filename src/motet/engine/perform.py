"""What a worker asks, answered for real: compiled calls, host environments, replays, ports.

Every driver of this process uses it. A performer is a generator where it has to wait: it yields what it waits for, and
the driver decides how.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.compiled import CHUNK, CompiledCall, CompiledIterations, Home, PlainCall
from motet.engine.environments import Environments
from motet.engine.ledger import Ledger
from motet.engine.ports import Ports
from motet.engine.replays import OutsideReplay
from motet.engine.requests import Compute, Consult, Done, Iterate, Put, Request, Stack, Take
from motet.engine.variables import Variables
from motet.engine.waits import ENVIRONMENTS, Arrival, Room, Wait
from motet.engine.worker import Worker
from motet.flow.graph import REDUCE
from motet.plan.schedule import Ask

Waits = Generator[Wait, None, None]
Answer = Generator[Wait, None, Any]


@dataclass
class Performer:
    """One worker and all that answers it."""

    worker: Worker
    home: Home
    root: jax.Array
    ports: Ports
    environments: Environments
    replay: OutsideReplay
    ledger: Ledger
    on_done: Callable[[Performer, Done], int | None]
    """Told between iterations, before the first one too. It may say how many at most come next, where many are one
    call; 0 anywhere: none."""
    compiled: bool = True
    programs: dict[int, Any] = field(default_factory=dict)
    pace: int = 1
    """How many iterations the next call of many will have."""
    under_way: int = 1
    """How many the last one that was begun was to have."""

    @property
    def ahead(self) -> int:
        """How many iterations at most it may have done that it has not told of, if it is not let begin another call."""
        return max(self.pace, self.under_way)

    def drive(self, until: int) -> Waits:
        """Take the worker to the end of iteration `until` - 1."""
        if self.worker.started and self.environments.pool is None:
            for each in self.worker.schedule.start:
                if isinstance(each, Ask):
                    self.environments.resume(each.node)
        requests = self.worker.run(until)
        reply: Any = None
        most: int | None = None
        while True:
            try:
                request = requests.send(reply)
            except StopIteration:
                return
            if isinstance(request, Done):
                self.ledger.iterated(request.iteration)
                reply, most = None, self.on_done(self, request)
                if most == 0:
                    return requests.close()
            elif isinstance(request, Iterate):
                reply = self._iterate(request, most or CHUNK)
            else:
                reply = yield from self._answer(request)

    def _answer(self, request: Request) -> Answer:
        worker, recorder = self.worker, self.ledger.recorder
        if isinstance(request, Compute):
            start, program, spent = time.perf_counter(), self.program(request), self.environments.spent
            written = program(worker.variables, self.root, request.path)
            self._asked(program, spent)
            if recorder.on:
                recorder.computed(request.call.label, start, written)
            return written
        if isinstance(request, Consult):
            return (yield from self._consult(request))
        if isinstance(request, Stack):
            start, stacked = time.perf_counter(), self._stack(request)
            if recorder.on:
                recorder.computed(f"stack {request.loop.name}", start, stacked)
            return stacked
        if isinstance(request, Put):
            for channel in self.ports.outgoing.get(request.wire, ()):
                if not channel.has_room():
                    yield from self._wait(Room(channel))
                start = time.perf_counter()
                self.ports.put(channel, request.version, worker.variables, worker.started)
                if recorder.on:
                    recorder.add("send", channel.name, start)
            return None
        assert isinstance(request, Take)
        return (yield from self._take(request))

    def _asked(self, program: Any, spent: float) -> None:
        """A program that asks the environments itself has waited for them meanwhile."""
        if self.environments.spent > spent and getattr(program, "asks", False):
            self.ledger.waited(ENVIRONMENTS, self.environments.spent - spent)

    def _wait(self, wait: Wait) -> Waits:
        asked = time.perf_counter()
        yield wait
        if self.ledger.recorder.on:
            self.ledger.recorder.add("wait", wait.reason, asked)
        self.ledger.waited(wait.whom, time.perf_counter() - asked)

    def _take(self, request: Take) -> Answer:
        wire, counted, recorder = request.wire, self.worker.started, self.ledger.recorder
        if request.version is None:
            return self.ports.newest(wire, request.path, counted)
        received = []
        for channel in self.ports.incoming.get(wire, ()):
            if not channel.has_message():
                yield from self._wait(Arrival(channel))
            received.append(channel.take())
        start = time.perf_counter()
        values = self.ports.arrived(wire, request.path, received, counted, request.version)
        if recorder.on:
            recorder.add("receive", wire.name, start)
        return values

    def _consult(self, request: Consult) -> Answer:
        node, values = request.operation.node, self.worker.variables
        if not isinstance(request.operation, Ask):
            return self._remembered(request)
        asked = time.perf_counter()
        answer = yield from self.environments.answer(node, values)
        self.ledger.waited(ENVIRONMENTS, time.perf_counter() - asked)
        return answer

    def _remembered(self, request: Consult) -> Variables:
        node, start, recorder = request.operation.node, time.perf_counter(), self.ledger.recorder
        written = self.replay.answer(node, self.worker.variables, self.root, request.path)
        if recorder.on:
            recorder.add("replay", node.name, start)
        return written

    def program(self, request: Compute) -> Any:
        """The program of a call. Calls that are alike, as the prefill's are, have one."""
        found = self.programs.get(id(request.call))
        if found is None:
            alike = (each for each in self.programs.values() if each.call == request.call)
            made = next(alike, None) or (CompiledCall if self.compiled else PlainCall)(request.call, self.home)
            found = self.programs[id(request.call)] = made
        return found

    def _iterate(self, request: Iterate, most: int) -> tuple[Variables, np.ndarray]:
        program = self.programs.get(id(request.call))
        if program is None:
            reports = self.worker.schedule.reports
            program = self.programs[id(request.call)] = CompiledIterations(request.call, self.home, reports=reports)
        warm, start, spent = program.compiled is not None, time.perf_counter(), self.environments.spent
        self.under_way = count = min(self.pace, request.most, most, CHUNK)
        written, rows = program.many(self.worker.variables, self.root, request.first, count)
        count = len(rows)
        self._asked(program, spent)
        if warm:  # aim at a call every quarter of a second
            self.pace = max(1, min(2 * count, int(0.25 * count / (time.perf_counter() - start))))
        if self.ledger.recorder.on:
            last = f" to {request.first + count - 1}" if count > 1 else ""
            self.ledger.recorder.computed(f"iteration {request.first}{last}", start, written)
        return written, rows

    def _stack(self, request: Stack) -> Variables:
        """What outlives a loop. Rows from the host become one array there, and cross to the device in one piece."""
        done: Variables = {}
        on_device: dict[str, Any] = {}
        variables, place = self.home.lowering.graph.variables, self.home.place
        for out in request.loop.outputs:
            if not request.rows[out.name]:
                avals = variables[out.name].local(self.home.lowering.cut.parts)
                done[out.name] = tuple(np.zeros(aval.shape, aval.dtype) for aval in avals)
                continue
            leaves = tuple(zip(*request.rows[out.name], strict=True))
            if leaves and all(isinstance(row, np.ndarray) for row in leaves[0]):
                done[out.name] = tuple(map(HOST_REDUCE[out.how], leaves))
            else:
                on_device[out.name] = leaves
        hows = tuple(out.how for out in request.loop.outputs if out.name in on_device)
        shardings = tuple(tuple(place.sharding(axis) for axis in variables[name].axes) for name in on_device)
        reduced = _reducer(hows, shardings)(tuple(on_device.values())) if on_device else ()
        return done | dict(zip(on_device, reduced, strict=True))

    def close(self) -> None:
        self.environments.close()
        self.replay.close()


HOST_REDUCE: dict[str, Callable[[Any], Any]] = {
    "stack": np.stack,
    "sum": lambda rows: np.sum(rows, 0, dtype=np.int32 if rows[0].dtype == bool else rows[0].dtype),
    "mean": lambda rows: np.mean(rows, 0),
}
"""The same as `REDUCE`, of NumPy's arrays."""


@functools.cache
def _reducer(hows: tuple[str, ...], shardings: Any) -> Callable[[Any], Any]:
    """All reductions of one loop as one compiled call: op by op, a long rollout would be thousands of them."""

    def reduce(outputs: Any) -> Any:
        return tuple(
            tuple(REDUCE[how](jnp.stack(leaf)) for leaf in leaves) for how, leaves in zip(hows, outputs, strict=True)
        )

    return jax.jit(reduce, out_shardings=shardings)
