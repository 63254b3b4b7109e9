"""Metrics on their way out of a run: one row an iteration, one column a number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from motet.flow.graph import Graph, Report


class Columns:
    """The names of a graph's metrics, in the order in which programs report them."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.names: list[str] = []
        self.nodes: list[str] = []
        self.of: dict[str, range] = {}
        for report in graph.reports:
            names = _names(graph, report)
            self.of[report.var] = range(len(self.names), len(self.names) + len(names))
            self.names += names
            self.nodes += [report.node] * len(names)


def _names(graph: Graph, report: Report) -> list[str]:
    var = graph.variables[report.var]
    if report.how == "sum":
        return [report.var]
    paths = jax.tree_util.tree_flatten_with_path(var.unpack(var.avals))[0]
    return ["/".join(str(getattr(key, "key", key)) for key in path) for path, _ in paths]


class Collector:
    """Puts together each iteration's row from the replicas that report parts of it."""

    def __init__(
        self, graph: Graph, columns: Columns, parts: Mapping[str, int], on_rows: Callable[[int, np.ndarray], None]
    ):
        """`parts` says for each reported variable how many replicas report it."""
        self.columns, self.parts, self.on_rows = columns, parts, on_rows
        self.how = {report.var: report.how for report in graph.reports}
        self.pending: dict[int, tuple[np.ndarray, int]] = {}
        self.lock = threading.Lock()

    def add(self, iteration: int, values: Mapping[str, tuple[Any, ...]]) -> None:
        """Take what a worker shows of an iteration; nothing, where another worker shows all."""
        if not values:
            return
        with self.lock:
            row, missing = self.pending.pop(iteration, (np.zeros(len(self.columns.names)), sum(self.parts.values())))
            for var, leaves in values.items():
                for column, leaf in zip(self.columns.of[var], leaves, strict=True):
                    share = 1 if self.how[var] == "sum" else self.parts[var]
                    row[column] += np.sum(np.asarray(leaf)) / share
            missing -= len(values)
            if missing:
                self.pending[iteration] = (row, missing)
            else:
                self.on_rows(iteration, row[None])
