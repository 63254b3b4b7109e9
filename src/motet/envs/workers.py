"""A pool whose environments live in worker processes: many in each, observations and actions in shared memory."""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import cloudpickle
import numpy as np

from motet.bounds import RECORD, Outside, Tally
from motet.envs.by_id import registrations
from motet.envs.checks import all_bounds
from motet.envs.form import Form
from motet.envs.group import Build, Seats
from motet.envs.messages import ERRORS, OUTSIDE, RESET, STEP, WORDS, Setup, receive_words
from motet.envs.process import Process, where_it_is
from motet.envs.shared import attach
from motet.envs.slots import Slot, slots_over, slots_size
from motet.envs.staff import Belongings, PoolWorker
from motet.errors import BadEnvironment, EnvironmentFailed, EnvironmentTimeout, MotetError, described
from motet.flow.host import HostStep, Leaves, Opening, numbered
from motet.memory import reserve

LONGEST_SLEEP = 3600.0
"""Seconds after which a wait looks at its deadline, which may be infinite."""

WITHOUT_WATCH = 0.5
"""The same where nothing tells at once of the end of a process."""


class WorkerPool:
    """See `Pool` and `Waitable`."""

    def __init__(self, build: Build, form: Form, opening: Opening, tally: Tally | None = None):
        self._form, self._opening, self._tally = form, opening, tally or Tally()
        self._build = _pickled(build, form)
        self._registrations = tuple(registrations())
        self._shares = _even(opening.count, min(opening.workers, opening.count))
        header = len(self._shares) * WORDS * 8
        size = header + slots_size(form, opening.count)
        remedy = "Use fewer environments or smaller observations"
        memory = reserve(size, f"{opening.count} environments of {form.name!r}", remedy)
        self._own = Belongings(memory, attach(memory))
        self._finalizer = weakref.finalize(self, self._own.give_back)
        self._slots = slots_over(self._own.shared, header, form, opening.count)
        self._poll = select.poll()
        self._longest_sleep = LONGEST_SLEEP if hasattr(os, "pidfd_open") else WITHOUT_WATCH
        self._by_descriptor: dict[int, PoolWorker] = {}
        self._turn = 0
        self._all, self._none = np.ones(opening.count, np.bool_), np.zeros(opening.count, np.int32)
        self._restarts = 0
        self._started = False
        with self._or_close():
            self._start_all()

    @property
    def rows(self) -> tuple[slice, ...]:
        """Which environments each worker has."""
        return tuple(self._shares)

    def reset(self) -> Leaves:
        workers, self._turn = self._idle(), 1 - self._turn
        self._run(workers, RESET)
        return self._slots[self._turn].observation

    def step(self, action: Leaves) -> HostStep:
        self.begin(action)
        return self.finish()

    def begin(self, action: Leaves) -> None:
        """Begin a step of all environments, and let the caller do something else meanwhile."""
        workers, self._turn = self._idle(), 1 - self._turn
        self._slots[self._turn].put(action)
        try:
            for worker in workers:
                self._tell(worker, STEP, self._turn)
        except BaseException:  # As in `_or_close`, which would cost more than the rest of this.
            self.close()
            raise

    def ready(self) -> bool:
        """Whether `finish` would return at once."""
        workers = self._workers()
        with self._or_close():
            self._listen(workers, 0.0)
        return not any(worker.busy for worker in workers)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to poll to learn that `ready` may have changed."""
        return tuple(self._by_descriptor)

    def finish(self) -> HostStep:
        """Wait for the step that `begin` began."""
        workers = self._workers()
        try:
            self._wait(workers)
        except BaseException:
            self.close()
            raise
        return self._result(self._slots[self._turn], workers)

    def close(self) -> None:
        if self._finalizer.alive:
            for worker in self._own.workers:
                record = worker.words.cast("B").cast("d")[OUTSIDE : OUTSIDE + RECORD].tolist()
                self._tally.add(Outside.read(record, all_bounds(self._form)))
        self._slots, self._by_descriptor = (), {}
        self._finalizer()

    # What follows is the pool's own: telling workers what to do, and waiting for them.

    @contextlib.contextmanager
    def _or_close(self) -> Iterator[None]:
        """Any error, Ctrl-C included, leaves workers in the middle of something: the pool cannot go on."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _workers(self) -> list[PoolWorker]:
        if not self._finalizer.alive:
            raise MotetError("This pool is closed; open a new one.")
        return self._own.workers

    def _idle(self) -> list[PoolWorker]:
        workers = self._workers()
        for worker in workers:
            if worker.busy:
                raise MotetError(f"Worker {worker.number} is still {worker.busy}; finish() that step first.")
        return workers

    def _start_all(self) -> None:
        for number, rows in enumerate(self._shares):
            start = number * WORDS * 8
            words = memoryview(self._own.shared)[start : start + WORDS * 8].cast("q")
            self._own.workers.append(PoolWorker(number, rows, Process(self._own.memory), words))
        for worker in self._own.workers:
            self._introduce(worker)
        self._wait(self._own.workers)
        self._started = True

    def _introduce(self, worker: PoolWorker) -> None:
        """Listen to a worker's new process, and tell it what it is."""
        process = worker.process
        for descriptor in process.descriptors:
            self._poll.register(descriptor, select.POLLIN)
            self._by_descriptor[descriptor] = worker
        self._begin(worker, "starting")
        indices = range(worker.rows.start, worker.rows.stop)
        seeds = tuple(self._opening.seed_of(index, worker.deaths) for index in indices)
        piece = Seats(self._opening.first + worker.rows.start, seeds)
        setup = Setup(
            self._build,
            self._form,
            piece,
            worker.number,
            len(self._shares),
            self._opening.count,
            worker.rows,
            self._registrations,
        )
        process.send_setup(cloudpickle.dumps(setup), self._opening.timeout)

    def _unlisten(self, worker: PoolWorker) -> None:
        for descriptor in worker.process.descriptors:
            self._poll.unregister(descriptor)
            del self._by_descriptor[descriptor]

    def _begin(self, worker: PoolWorker, what: str) -> None:
        worker.busy, worker.deadline = what, time.monotonic() + self._opening.timeout

    def _tell(self, worker: PoolWorker, command: int, slot: int) -> None:
        worker.slot, worker.lost = slot, False
        if worker.dead:
            self._revive(worker)
            return
        self._begin(worker, "resetting" if command == RESET else "stepping")
        worker.process.command(worker.words, command, slot)

    def _run(self, workers: list[PoolWorker], command: int) -> None:
        with self._or_close():
            for worker in workers:
                self._tell(worker, command, self._turn)
            self._wait(workers)

    def _wait(self, workers: list[PoolWorker]) -> None:
        """Until all of them are idle."""
        while busy := [worker for worker in workers if worker.busy]:
            deadline = min([worker.deadline for worker in busy])
            self._listen(workers, min(max(0.0, deadline - time.monotonic()), self._longest_sleep))

    def _listen(self, workers: list[PoolWorker], seconds: float) -> None:
        """Take note of what workers have to say, waiting for the first word at most so long."""
        events = self._poll.poll(seconds * 1000)
        # Bells first: a worker that finished and then died has finished. And what follows a death may close
        # descriptors and open others of the same number.
        for descriptor, _ in events if len(events) == 1 else sorted(events, key=self._order):
            if descriptor in self._by_descriptor:  # not if it belonged to a worker that is dead by now
                self._hear(descriptor)
        if not events:
            self._look_for_dead(workers)
            self._complain(workers)

    def _order(self, event: tuple[int, int]) -> int:
        return self._by_descriptor[event[0]].process.descriptors.index(event[0])

    def _look_for_dead(self, workers: list[PoolWorker]) -> None:
        """Where no descriptor tells of the end of a process, and somebody else holds its socket open."""
        for worker in workers:
            if worker.process.ended is None and worker.busy and worker.process.wait(0.0):
                self._mourn(worker)

    def _hear(self, descriptor: int) -> None:
        worker = self._by_descriptor[descriptor]
        if descriptor == worker.process.done.hear:
            worker.process.done.heard()
            if worker.lost:
                self._blank(worker)
            worker.busy = ""
            return
        if descriptor == worker.process.ended and not worker.process.has_words():
            self._mourn(worker)
            return
        words = receive_words(worker.process.channel)
        if words is None:
            self._mourn(worker)
        elif words["kind"] == "error":
            raise self._error(worker, words)
        elif worker.lost:  # It has started anew; its environments need an episode to begin with.
            self._begin(worker, "resetting")
            worker.process.command(worker.words, RESET, worker.slot)
        else:
            worker.busy = ""

    def _mourn(self, worker: PoolWorker) -> None:
        """The worker's process is dead, and has left no word."""
        self._unlisten(worker)
        if worker.busy:
            self._revive(worker)
        else:
            worker.dead = True

    def _revive(self, worker: PoolWorker) -> None:
        """The worker's process is dead. Start another one; if the worker was at work, the work is lost."""
        self._workers()  # A pool that was closed from elsewhere does not start anything.
        how = worker.process.how_it_ended()
        what = f"Worker {worker.number} with {self._whose(worker)} died while {worker.busy or 'waiting'}: {how}"
        if not self._started:
            raise EnvironmentFailed(f"{what}. Nothing was started; make one of its environments by hand to see why.")
        if self._restarts == self._opening.restarts:
            raise EnvironmentFailed(
                f"{what}. Workers were started anew {self._restarts} times, and more is not allowed. "
                "If their deaths are not the environment's fault, raise `restarts`."
            )
        self._restarts += 1
        fresh = Process(self._own.memory)
        worker.process.forget()
        worker.process = fresh
        worker.lost, worker.dead = True, False
        worker.deaths += 1
        worker.unreported += 1
        self._introduce(worker)

    def _blank(self, worker: PoolWorker) -> None:
        """Rows of a lost step say nothing but the observation that opens the new episode."""
        rows = self._slots[worker.slot].rows(worker.rows)
        for part in (rows.reward, rows.terminated, rows.truncated):
            part[...] = 0

    def _result(self, slot: Slot, workers: list[PoolWorker]) -> HostStep:
        if not any(worker.lost or worker.unreported for worker in workers):
            return HostStep(*slot[1:], self._all, self._none)
        valid, restarts = np.ones_like(self._all), np.zeros_like(self._none)
        for worker in workers:
            if worker.lost:
                valid[worker.rows] = False
            restarts[worker.rows.start] = worker.unreported
            worker.unreported = 0
        return HostStep(*slot[1:], valid, restarts)

    def _complain(self, workers: list[PoolWorker]) -> None:
        late = [worker for worker in workers if worker.busy and worker.deadline <= time.monotonic()]
        if not late:
            return
        said = "; ".join(
            f"worker {worker.number} with {self._whose(worker)} is still {worker.busy}, at environment "
            f"{numbered(self._opening.first + worker.rows.start + where_it_is(worker.words))}"
            for worker in late
        )
        raise EnvironmentTimeout(
            f"After {self._opening.timeout:g} s {said} ({self._form.name}). "
            "If it may take that long, raise `step_timeout`."
        )

    def _error(self, worker: PoolWorker, words: dict[str, Any]) -> Exception:
        """A worker's error, as the caller would have got it from an environment in its own thread."""
        trace = f"\n\nIn worker {worker.number}:\n{words['traceback']}" if words["traceback"] else ""
        if words["type"] == "EnvironmentFailed":
            return EnvironmentFailed(words["message"] + trace, words["index"], words["step"])
        return ERRORS[words["type"]](words["message"] + trace)

    def _whose(self, worker: PoolWorker) -> str:
        first, last = (self._opening.first + index for index in (worker.rows.start, worker.rows.stop - 1))
        return (
            f"environment {numbered(first)}" if first == last else f"environments {numbered(first)} to {numbered(last)}"
        )


def _even(count: int, workers: int) -> list[slice]:
    """Contiguous shares, the larger ones first."""
    bounds = [0]
    for number in range(workers):
        bounds.append(bounds[-1] + count // workers + (number < count % workers))
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _pickled(build: Build, form: Form) -> bytes:
    try:
        return cloudpickle.dumps(build)
    except Exception as error:
        raise BadEnvironment(
            f"Environments in worker processes must be made by something that can be pickled, but what makes "
            f"{form.name!r} cannot be: {described(error)}. Make everything that belongs to a process "
            "(files, locks, devices, windows) inside of the function, or use workers=0."
        ) from error
