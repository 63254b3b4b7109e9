"""Host environments inside of compiled programs: XLA asks Python for a step and goes on with what it says.

A loop around an environment is then one compiled call, instead of a call or two for every step.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.cpu.callback import host_call
from motet.engine.environments import Environments
from motet.errors import Stopped
from motet.flow.environment import settle
from motet.flow.graph import Cut, Graph, Node
from motet.flow.host import HostStep


@dataclass
class Bridge:
    """Connects the programs of one fragment with its replicas' environments. Replicas on one device have one program
    together, so it says for which of them it asks."""

    stopped: Callable[[], bool]
    """Whether the run is over: no further step is taken then."""
    environments: dict[int, Environments] = field(default_factory=dict)
    """Each replica's."""
    failures: dict[int, BaseException] = field(default_factory=dict)
    """What they raised: on its way through XLA, an exception becomes another."""

    def step(self, graph: Graph, cut: Cut, node: Node, replica: Any, leaves: list[Any]) -> list[Any]:
        """Traced: the node's inputs -> what it writes."""
        assert node.host is not None
        avals = [graph.variables[name].local(cut.parts) for name in node.host.writes]
        length, total, *action = leaves
        flat = iter(host_call(self.answer, tuple(a for each in avals for a in each), replica, *action))
        first, last, *rest = ([next(flat) for _ in each] for each in avals)
        return list(settle(HostStep(tuple(first), tuple(last), *(each for (each,) in rest)), length, total, jnp))

    def answer(self, replica: np.ndarray, *action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Called by XLA."""
        number = int(replica)
        try:
            if running.leaving or self.stopped():
                raise Stopped(f"replica {number} was stopped")
            step = self.environments[number].step(action)
        except BaseException as error:
            self.failures[number] = error
            raise
        return (*step.observation, *step.next_observation, *step[2:])

    def run(self, program: Callable[..., Any], arguments: tuple[Any, ...], replica: int) -> Any:
        """Call a program that asks, and wait for its end. What the environments raise is raised as it is."""
        try:
            with running:
                # A program may go on after the call has returned, if JAX was used before it could be told otherwise.
                return jax.block_until_ready(program(*arguments))
        except Exception:
            failure = self.failures.pop(replica, None)
            if failure is None:
                raise
        raise failure


class _Running:
    """How many programs that may ask are running. A thread that comes back from XLA into an interpreter that has
    ended takes the whole process down, so whoever ends it waits for them."""

    def __init__(self) -> None:
        self.count, self.leaving, self.changed = 0, False, threading.Condition()

    def __enter__(self) -> None:
        with self.changed:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.count -= 1
            self.changed.notify_all()

    def leave(self) -> None:
        self.leaving = True
        with self.changed:
            self.changed.wait_for(lambda: not self.count, PATIENCE)


PATIENCE = 5.0
"""Seconds that environments have to finish their step when the interpreter ends."""
running = _Running()
atexit.register(running.leave)
