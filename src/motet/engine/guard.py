"""Numbers that are no longer finite: when and where it happened, and the last state that was."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.report import Columns
from motet.engine.variables import Variables
from motet.errors import Diverged, MotetError
from motet.flow.graph import Graph
from motet.flow.values import on_host

EVERY = 256
"""Iterations between two looks at a replay. Where there are priorities, a call of many iterations has no more."""


class Guard:
    """Looks at every metric of every iteration, and at the learner state from time to time."""

    def __init__(self, graph: Graph, columns: Columns, interval: float = 1.0):
        self.roles, self.columns, self.interval = graph.roles, columns, interval
        self.learner, self.remembered = graph.variables[graph.roles.learner], graph.variables.get(graph.roles.replay)
        self.steps = graph.steps_per_iteration
        self.good: tuple[int, tuple[Any, ...]] | None = None
        self.last = -float("inf")
        self.lock = threading.Lock()
        calls = (node.replay for node in graph.nodes() if node.replay is not None)
        self.replay = next((call.replay for call in calls), None)
        self.replay_seen = 0

    def rows(self, first: int, rows: np.ndarray) -> None:
        """Raise `Diverged` at the first iteration with a metric that is not finite."""
        if np.isfinite(rows).all():
            return
        row, column = (int(place[0]) for place in np.nonzero(~np.isfinite(rows)))
        iteration, value = first + row, rows[row, column]
        raise Diverged(
            f"The metric {self.columns.names[column]!r} of node {self.columns.nodes[column]!r} became {value} in "
            f"iteration {iteration}, within the first {(iteration + 1) * self.steps:,} steps. {self._kept()}",
            iteration,
        )

    @property
    def most(self) -> int | None:
        """How many iterations may be one call: bad priorities are noted inside of it, and told between two."""
        return EVERY if self.replay is not None and self.replay.prioritised else None

    def look(self, iteration: int, values: Variables, force: bool = False) -> None:
        """Check what a worker holds after `iteration` iterations: the learner state, the replay."""
        if self.roles.learner in values:
            self._look_at_learner(iteration, values[self.roles.learner], force)
        if values.get(self.roles.replay) and (force or iteration - self.replay_seen >= EVERY):
            self.replay_seen = iteration
            self._look_at_replay(values[self.roles.replay])

    def _look_at_learner(self, iteration: int, leaves: tuple[Any, ...], force: bool) -> None:
        """Keep a copy of the state if it is finite, unless one was kept just now."""
        now = time.monotonic()
        if not force and now - self.last < self.interval:
            return
        finite = [bool(each) for each in _finite(leaves)]
        if not all(finite):
            paths = jax.tree_util.tree_flatten_with_path(self.learner.unpack(leaves))[0]
            where = jax.tree_util.keystr(paths[finite.index(False)][0])
            raise Diverged(
                f"The learner state is no longer finite at {where} after iteration {iteration - 1}, within the first "
                f"{iteration * self.steps:,} steps. {self._kept()}",
                iteration - 1,
            )
        with self.lock:
            self.good, self.last = (iteration, jax.tree.map(on_host, leaves)), now

    def _look_at_replay(self, leaves: tuple[Any, ...]) -> None:
        """Raise what a replay inside of a compiled program could only note."""
        complaint = self.replay.complaint(self.remembered.unpack(leaves)) if self.replay and self.remembered else None
        if complaint:
            raise MotetError(complaint)

    def _kept(self) -> str:
        with self.lock:
            if self.good is None:
                return "No earlier state was kept. Try a lower learning rate or a smaller gradient norm."
            return (
                f"The last good state, after iteration {self.good[0] - 1}, is kept. "
                "Try a lower learning rate or a smaller gradient norm."
            )


@jax.jit
def _finite(leaves: tuple[Any, ...]) -> list[jax.Array]:
    return [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
