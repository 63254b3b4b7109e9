"""One replica of one fragment: a state machine over its schedule.

It computes nothing and waits for nobody. It says what must happen next (see `requests.py`), is told the answer, and
goes on. So the same worker runs in a thread, beside others in one thread, in another process, or on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motet.engine.requests import Compute, Consult, Done, Iterate, Put, Request, Stack, Take
from motet.engine.variables import Variables
from motet.plan import protocol
from motet.plan.project import Receive, Rounds, Send
from motet.plan.protocol import Version
from motet.plan.schedule import Call, Operation, Schedule

Requests = Generator[Request, Any, None]


@dataclass(frozen=True)
class WorkerState:
    """All that a worker knows between two iterations. With the messages under way it is enough to go on from."""

    iteration: int
    variables: Mapping[str, tuple[Any, ...]]


@dataclass
class Worker:
    """What a replica holds, and what it does next."""

    name: str
    fragment: str
    index: int
    schedule: Schedule
    whole: bool = False
    """Whether many iterations are one request: this worker is all of the run."""
    variables: Variables = field(default_factory=dict)
    iteration: int = 0
    begun: int = 0
    """The iteration that the run began with: no message is older."""
    started: bool = False
    """True once the first state is made: what is sent before is not an iteration's traffic."""

    def run(self, until: int) -> Requests:
        """Make the first state, unless there is one, and go on to the end of iteration `until` - 1."""
        if not self.started:
            yield from self._operations(self.schedule.start, (), None)
            self.started = True
        yield Done(self.iteration, {})
        while self.iteration < until:
            yield from self._iterate_many(until) if self.whole else self._iterate()

    def state(self) -> WorkerState:
        """Between two iterations: what `load` needs to go on exactly from here."""
        return WorkerState(self.iteration, {name: self.variables[name] for name in self.schedule.state})

    def load(self, state: WorkerState) -> None:
        """Go on from a state that a worker of the same schedule was in."""
        missing = sorted(set(self.schedule.state) - set(state.variables))
        if missing:
            raise ValueError(f"{self.name} needs {', '.join(missing)} to go on, which the state does not hold.")
        self.variables = {name: tuple(state.variables[name]) for name in self.schedule.state}
        self.iteration, self.started = state.iteration, True

    def _iterate(self) -> Requests:
        yield from self._operations(self.schedule.body, (self.iteration,), None)
        self.iteration += 1
        yield Done(self.iteration, {name: self.variables.pop(name) for name, _ in self.schedule.reports})

    def _iterate_many(self, until: int) -> Requests:
        assert self.schedule.whole is not None
        written, rows = yield Iterate(self.schedule.whole, self.iteration, until - self.iteration)
        self.variables.update(written)
        self.iteration += len(rows)
        yield Done(self.iteration, {}, rows)

    def _operations(self, operations: Sequence[Operation], path: Version, around: Rounds | None) -> Requests:
        """One round of `around`; None: of the iterations, which have no last round."""
        first, last = (around.first, around.first + around.count - 1) if around else (self.begun, None)
        for each in operations:
            if isinstance(each, Call):
                self.variables.update((yield Compute(each, path)))
            elif isinstance(each, Rounds):
                yield from self._rounds(each, path)
            elif isinstance(each, Send):
                if protocol.is_sent(each.wire, path, last):
                    yield Put(each.wire, path)
            elif isinstance(each, Receive):
                latest = each.wire.lag == "latest" and each.wire.carried
                due = None if latest else protocol.due(each.wire, path, first, self.begun)
                if due is not None or each.wire.lag == "latest":
                    self.variables.update((yield Take(each.wire, due, path)))
            else:
                self.variables.update((yield Consult(each, path)))

    def _rounds(self, loop: Rounds, path: Version) -> Requests:
        rows: dict[str, list[Any]] = {out.name: [] for out in loop.outputs}
        is_due = loop.every == 1 or (path[-1] + 1) % loop.every == 0
        for index in range(loop.first, loop.first + loop.count) if is_due else ():
            yield from self._operations(loop.body, (*path, index), loop)  # type: ignore[arg-type]
            for out in loop.outputs:
                rows[out.name].append(self.variables[out.inner])
        if rows:
            self.variables.update((yield Stack(loop, rows)))
