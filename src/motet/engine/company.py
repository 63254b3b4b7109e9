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

from motet.engine.detect import cores
from motet.engine.ports import Channel, Message
from motet.engine.supervise import Supervisor
from motet.engine.waits import Arrival
from motet.plan.cost import Points

ROUNDS = 200


def time_waking() -> float:
    """Seconds from the sending of a message until a thread that waited for it goes on."""
    there, back = (Channel(name, name, name, (), 1, False, queue=deque()) for name in ("there", "back"))
    supervisor, message = Supervisor(60.0), Message((), (), 0)

    def pass_on(source: Channel, target: Channel) -> None:
        supervisor.wait(source.name, Arrival(source))
        source.take()
        target.put(message, False)

    def answer() -> None:
        for _ in range(ROUNDS):
            pass_on(there, back)

    thread, took = threading.Thread(target=answer, daemon=True), []
    thread.start()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        there.put(message, False)
        supervisor.wait("back", Arrival(back))
        back.take()
        took.append((time.perf_counter() - start) / 2)
    thread.join()
    return statistics.median(took)


def time_crowding(seconds: float = 0.06) -> float:
    """How fast a core is while all others are at work too, as a share of its speed alone."""
    program = _some_work()
    program()

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

    pairs = [(speed(1), speed(cores())) for _ in range(5)]
    return min(1.0, statistics.median(many / alone for alone, many in pairs))


def _some_work() -> Callable[[], Any]:
    """A millisecond of what learning does: products of small matrices, one after the other in one thread."""
    options: dict[str, str | bool] = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}

    def work(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(y @ weights), x)

    x, weights = jnp.ones((512, 64)), jnp.full((64, 64), 0.01)
    try:
        program = jax.jit(work).lower(x, weights).compile(options)
    except Exception:  # XLA's own, where it does not know the option
        program = jax.jit(work).lower(x, weights).compile()
    return lambda: jax.block_until_ready(program(x, weights))


def time_calling() -> Points:
    """Seconds to call a program that does nothing, by the arrays that go in and come out."""
    found = []
    for arrays in (2, 24):
        values = tuple(jnp.zeros(1) for _ in range(arrays))
        program = jax.jit(lambda found: tuple(-each for each in found)).lower(values).compile()
        took = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            program(values)
            took.append(time.perf_counter() - start)
        found.append((2.0 * arrays, float(np.median(took))))
    return tuple(found)
