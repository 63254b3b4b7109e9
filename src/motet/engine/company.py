"""What company costs: to wake a thread that waits, to share the cores, to hold Python's lock while a program is called.

Calls are timed alone. What happens when several threads are at work is known from these few figures, which are the
machine's and not a loop's.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.cpu.options import compiled, one_core
from motet.engine.detect import cores
from motet.engine.ports import Channel, Message
from motet.engine.stopwatch import mostly
from motet.engine.supervise import Supervisor
from motet.engine.waits import Arrival
from motet.plan.cost import Points

ROUNDS = 50
CROWDS = 4
BETWEEN = 0.5e-3
"""Seconds between two messages: about as long as a small policy takes to decide."""


class Company:
    """What was measured, a little each time: a machine is fast in one second and slow in the next."""

    def __init__(self) -> None:
        self._program = some_work()
        self._nothing = [nothing(arrays) for arrays in (2, 24)]
        self._waking: list[float] = []
        self._crowding: list[float] = []
        self._calling: list[list[float]] = [[], []]

    def measure(self) -> None:
        """Once more, in a fifth of a second."""
        self._waking.append(time_waking())
        self._crowding.append(time_crowding(self._program))
        for found, program in zip(self._calling, self._nothing, strict=True):
            found.append(time_calling(program))

    @property
    def waking(self) -> float:
        return statistics.median(self._waking)

    @property
    def crowding(self) -> float:
        return min(1.0, statistics.median(self._crowding))

    @property
    def calling(self) -> Points:
        """By the arrays that go in and come out."""
        first, second = map(statistics.median, self._calling)
        return (4.0, first), (48.0, second)


def time_waking() -> float:
    """Seconds from the sending of a message until a thread that has waited for a while goes on."""
    channel = Channel("", "", "", (), 1, False, queue=deque())
    supervisor, message, sent, took = Supervisor(60.0), Message((), (), 0), [0.0], list[float]()

    def receive() -> None:
        for _ in range(ROUNDS):
            supervisor.wait("", Arrival(channel))
            channel.take()
            took.append(time.perf_counter() - sent[0])

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    for _ in range(ROUNDS):
        until = time.perf_counter() + BETWEEN
        while channel.has_message() or time.perf_counter() < until:
            time.sleep(0)
        sent[0] = time.perf_counter()
        channel.put(message, False)
    thread.join()
    return mostly(took)


def time_crowding(program: Callable[[], Any], seconds: float = 0.02) -> float:
    """How fast a core is while all others are at work too, as a share of its speed alone. Of several times the best but
    one: somebody else may want the cores meanwhile, and nobody gives any."""

    def work(until: float, found: list[float]) -> None:
        began, done = time.perf_counter(), 0
        while not done or time.perf_counter() < until:
            program()
            done += 1
        found.append(done / (time.perf_counter() - began))

    def speed(threads: int) -> float:
        until, found = time.perf_counter() + seconds, list[float]()
        company = [threading.Thread(target=work, args=(until, found)) for _ in range(threads)]
        for each in company:
            each.start()
        for each in company:
            each.join()
        return statistics.mean(found)

    return sorted(speed(cores()) / speed(1) for _ in range(CROWDS))[-2]


def some_work() -> Callable[[], Any]:
    """A millisecond of what learning does: products of small matrices, one after the other in one thread."""
    options = one_core()

    def work(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(y @ weights), x)

    x, weights = jnp.ones((512, 64)), jnp.full((64, 64), 0.01)
    program, _ = compiled(jax.jit(work).lower(x, weights), options)
    return lambda: jax.block_until_ready(program(x, weights))


def nothing(arrays: int) -> Callable[[], Any]:
    """A program that does nothing with so many arrays, and gives as many."""
    values = tuple(jnp.zeros(1) for _ in range(arrays))
    program = jax.jit(lambda found: tuple(-each for each in found)).lower(values).compile()
    return lambda: program(values)


def time_calling(program: Callable[[], Any]) -> float:
    """Seconds to call a program that does nothing."""
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        program()
        took.append(time.perf_counter() - start)
    return float(np.median(took))
