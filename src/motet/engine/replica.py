"""One replica of one fragment, interpreting its program.

`Replica.run` is a generator: it yields a `Wait` whenever it cannot go on. A thread answers by blocking; the
serial engine by letting another replica go on. Both run the same programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.channels import Version, Wiring
from motet.engine.compile import Executable, Loop
from motet.engine.evaluate import Store
from motet.engine.host import HostStep
from motet.engine.place import Place
from motet.engine.supervise import Wait
from motet.flow.graph import REDUCE
from motet.plan.project import Recv, Send, Wire

Waits = Generator[Wait, None, None]


@dataclass
class Replica:
    """The state of one replica, and how it runs."""

    name: str
    fragment: str
    index: int
    place: Place
    executable: Executable
    wiring: Wiring
    root: jax.Array
    reports: tuple[str, ...]
    on_report: Callable[[Replica, int, Mapping[str, tuple[Any, ...]]], None]
    store: Store = field(default_factory=dict)
    iteration: int = 0
    started: bool = False
    """True once the first state is made: what is sent before is not an iteration's traffic."""

    def start(self) -> Waits:
        """Make the first state."""
        yield from self._steps(self.executable.start, (), None)
        self.started = True

    def iterate(self) -> Waits:
        """One training iteration."""
        yield from self._steps(self.executable.body, (self.iteration,), None)
        self.iteration += 1
        self.on_report(self, self.iteration - 1, {name: self.store.pop(name) for name in self.reports})

    def iterate_many(self, count: int) -> Any:
        """Many iterations of a program that sends and receives nothing -> a row of metrics for each."""
        assert self.executable.fused is not None
        written, rows = self.executable.fused.many(self.store, self.root, self.iteration, count)
        self.store.update(written)
        self.iteration += count
        return rows

    def _steps(self, steps: tuple[Any, ...], path: Version, around: Loop | None) -> Waits:
        """Interpret one round of `around`; None: of the iterations, which have no last round."""
        for step in steps:
            if isinstance(step, Loop):
                yield from self._loop(step, path)
            elif isinstance(step, Send):
                last = around is not None and path[-1] == around.first + around.count - 1
                if not (step.wire.carried and last and not step.wire.through):
                    yield from self._send(step.wire, path)
            elif isinstance(step, Recv):
                yield from self._receive(step.wire, path, around.first if around else 0)
            elif isinstance(step, HostStep):
                yield from step.run(self.store)
            else:
                self.store.update(step(self.store, self.root, path))

    def _loop(self, loop: Loop, path: Version) -> Waits:
        if loop.every > 1 and (path[-1] + 1) % loop.every:
            self.store.update({out.name: self._zeros(out.name) for out in loop.outputs})
            return
        rows: dict[str, list[tuple[Any, ...]]] = {out.name: [] for out in loop.outputs}
        for index in range(loop.first, loop.first + loop.count):
            yield from self._steps(loop.body, (*path, index), loop)
            for out in loop.outputs:
                rows[out.name].append(self.store[out.inner])
        self.store.update(self._stack(loop, rows))

    def _zeros(self, name: str) -> tuple[Any, ...]:
        """What is left of a loop that did not run."""
        return tuple(np.zeros(aval.shape, aval.dtype) for aval in self.wiring.graph.variables[name].avals)

    def _stack(self, loop: Loop, rows: Mapping[str, list[tuple[Any, ...]]]) -> Store:
        """What outlives a loop. Rows from the host become one array there, and cross to the device in one piece."""
        done: Store = {}
        on_device: dict[str, Any] = {}
        for out in loop.outputs:
            leaves = tuple(zip(*rows[out.name], strict=True))
            if leaves and all(isinstance(row, np.ndarray) for row in leaves[0]):
                done[out.name] = tuple(map(HOST_REDUCE[out.how], leaves))
            else:
                on_device[out.name] = leaves
        hows = tuple(out.how for out in loop.outputs if out.name in on_device)
        shardings = tuple(
            tuple(self.place.sharding(axis) for axis in self.wiring.graph.variables[name].axes) for name in on_device
        )
        reduced = _reducer(hows, shardings)(tuple(on_device.values())) if on_device else ()
        return done | dict(zip(on_device, reduced, strict=True))

    def _send(self, wire: Wire, path: Version) -> Waits:
        for channel in self.wiring.outgoing(wire, self.index):
            yield self.wiring.room(channel)
            self.wiring.put(channel, path, self.store, counted=self.started)

    def _receive(self, wire: Wire, path: Version, first: int) -> Waits:
        channels = self.wiring.incoming(wire, self.index)
        if wire.lag == "latest":
            if path[-1] == first or not all(channel.has_message() for channel in channels):
                return  # keep what is held
            received = [(channel, self.wiring.take(channel)) for channel in channels]
        else:
            due = _due(wire, path, first)
            if due is None:
                return
            received = []
            for channel in channels:
                yield self.wiring.message(channel)
                message = self.wiring.take(channel)
                self.wiring.check(wire, message, due)
                received.append((channel, message))
        if self.started and (len(path) == 1 or wire.through):
            now = _count(wire, path) - (1 if wire.carried else 0)
            for _, message in received:
                self.wiring.seen[wire].add(now - _count(wire, message.version))
        self.store.update(self.wiring.join(wire, self.place, received))


def _due(wire: Wire, path: Version, first: int) -> Version | None:
    """The round whose value is read now; None while the value from before the loop still serves."""
    if not wire.carried:
        return path
    assert isinstance(wire.lag, int)
    due = _count(wire, path) - 1 - wire.lag
    if wire.through:
        return None if due < 0 else divmod(due, wire.through)
    return None if due < first else (*path[:-1], due)


def _count(wire: Wire, path: Version) -> int:
    """The number of a round, as the wire counts them."""
    return path[0] * wire.through + path[-1] if wire.through else path[-1]


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
