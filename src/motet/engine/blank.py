"""Calls that compute nothing: in a plan that is timed, they stand for those whose time is known already.

What they give is zeros of the right form. To compile a program takes seconds, and most plans share most of their calls
with another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from motet.engine.compiled import CompiledCall, Home
from motet.engine.perform import Performer
from motet.engine.variables import Variables
from motet.flow.graph import Node
from motet.flow.values import is_key
from motet.flow.work import equations
from motet.plan.project import Rounds
from motet.plan.schedule import Call


@dataclass
class Blank:
    """Stands for a compiled call. Its results are new each time, since others may give their memory away."""

    call: Call
    home: Home
    asks: bool = False

    def __call__(self, values: Variables, root: jax.Array, path: tuple[int, ...]) -> Variables:
        low, place = self.home.lowering, self.home.place
        parts = low.cut.parts // low.cut.shards
        written = {name: low.graph.variables[name] for name in self.call.writes}
        return {
            name: tuple(place.put(_zeros(aval), axis) for aval, axis in zip(var.local(parts), var.axes, strict=True))
            for name, var in written.items()
        }


def _zeros(aval: Any) -> Any:
    return jax.random.split(jax.random.key(0), aval.shape) if is_key(aval) else np.zeros(aval.shape, aval.dtype)


@dataclass
class Pace:
    """How fast programs are compiled here: from what was compiled so far, how long another one will take."""

    equations: int = 0
    seconds: float = 0.0

    def expected(self, call: Call) -> float:
        return extent(call.body) * (self.seconds / self.equations if self.equations else USUAL)

    def note(self, call: Call, seconds: float) -> None:
        self.equations += extent(call.body)
        self.seconds += seconds


USUAL = 7e-3
"""Seconds for each operation, before anything was compiled."""


def extent(statements: Iterable[Any]) -> int:
    """How many operations there are to compile."""
    total = 0
    for each in statements:
        if isinstance(each, Rounds):
            total += extent(each.body)
        elif isinstance(each, Node) and each.code:
            total += equations(next(iter(each.code.values())).jaxpr)
    return total


@dataclass
class Limited:
    """A call that is compiled when it is first run, if that will be over at `until`; else it computes nothing."""

    call: Call
    home: Home
    until: float
    pace: Pace
    program: Any = None
    took: float = 0.0
    """Seconds to compile it, and to run it once."""

    @property
    def is_late(self) -> bool:
        return isinstance(self.program, Blank)

    @property
    def asks(self) -> bool:
        return self.program is not None and self.program.asks

    def __call__(self, values: Variables, root: jax.Array, path: tuple[int, ...]) -> Variables:
        if self.program is not None:
            return self.program(values, root, path)
        start = time.perf_counter()
        is_late = start + self.pace.expected(self.call) > self.until
        self.program = (Blank if is_late else CompiledCall)(self.call, self.home)
        written = self.program(values, root, path)
        self.took = time.perf_counter() - start
        if not is_late:
            self.pace.note(self.call, self.took)
        return written


def limit(performer: Performer, calls: Iterable[Call], until: float, pace: Pace) -> list[Limited]:
    """Let a performer compile these calls until then, and no longer."""
    limited = {id(call): Limited(call, performer.home, until, pace) for call in calls}
    performer.programs |= limited
    return list(limited.values())


def leave_out(performer: Performer, calls: Iterable[Call]) -> None:
    """Let a performer answer these calls with zeros."""
    performer.programs |= {id(call): Blank(call, performer.home) for call in calls}
