"""Metrics on their way out of a run: one row an iteration, one column a number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from motet.flow.combine import join
from motet.flow.graph import Graph


class Columns:
    """The names of a graph's metrics, in the order in which programs report them."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.names: list[str] = []
        self.nodes: list[str] = []
        self.every: list[int] = []
        """Each column means something in iterations n - 1, 2n - 1, ... alone; elsewhere it is 0."""
        self.of: dict[str, range] = {}
        for report in graph.reports:
            self.of[report.var] = range(len(self.names), len(self.names) + len(report.names))
            self.names += report.names
            self.nodes += [report.node] * len(report.names)
            self.every += [report.every] * len(report.names)


class Collector:
    """Puts together each iteration's row from the workers that report parts of it."""

    def __init__(
        self,
        graph: Graph,
        columns: Columns,
        parts: Mapping[str, int],
        on_rows: Callable[[int, np.ndarray], None],
        joined: Collection[str] = (),
    ):
        """`parts` says for each reported variable how many workers report it. Whoever reports one that is `joined` runs
        one program with the others, and has the whole of what has no environment axis."""
        self.columns, self.parts, self.on_rows, self.joined = columns, parts, on_rows, joined
        self.graph = graph
        self.how = {report.var: report.how for report in graph.reports}
        self.pending: dict[int, tuple[dict[str, list[tuple[np.ndarray, ...]]], int]] = {}
        self.lock = threading.Lock()

    def add(self, iteration: int, values: Mapping[str, tuple[Any, ...]]) -> None:
        """Take what a worker shows of an iteration; nothing, where another worker shows all."""
        if not values:
            return
        with self.lock:
            pieces, missing = self.pending.pop(iteration, ({}, sum(self.parts.values())))
            for var, leaves in values.items():
                pieces.setdefault(var, []).append(tuple(np.asarray(leaf) for leaf in leaves))
            missing -= len(values)
            if missing:
                self.pending[iteration] = (pieces, missing)
            else:
                self.on_rows(iteration, self._row(pieces)[None])

    def _row(self, pieces: Mapping[str, list[tuple[np.ndarray, ...]]]) -> np.ndarray:
        row = np.zeros(len(self.columns.names))
        for var, found in pieces.items():
            variable = self.graph.variables[var]
            for column, how, axis, *leaves in zip(
                self.columns.of[var], variable.combine, variable.axes, *found, strict=True
            ):
                if var in self.joined and axis is None:
                    leaves = leaves[:1]
                # What the pieces have of a sum over environments adds up; metrics combine as they were computed.
                one = sum(map(np.sum, leaves)) if self.how[var] == "sum" else np.mean(join(how or "mean", leaves))
                row[column] = one
        return row
