"""What `train` tells whoever shows a run."""

from __future__ import annotations

from typing import Protocol

from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.runs.metrics import Row


class Display(Protocol):
    """Whatever shows a run to a person."""

    def begin(self, graph: Graph, plan: Plan, total_steps: int) -> None: ...
    def status(self, text: str) -> None: ...
    def row(self, row: Row) -> None: ...
    def end(self) -> None: ...
