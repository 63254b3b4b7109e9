"""A loop run as it stands, by lines that share nothing with projection or the engine: the oracle of random plans.

There is one memory. A plan matters only for how old a value is when another fragment than its owner's reads it: a view
that lags by k is seen as it was k iterations before; the answer of an echo comes as many rounds late as its link, or
the link of what it answers, may lag. Rounds of an echo count on from one iteration to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.flow.graph import Graph, Item, Loop, Node
from motet.plan.plan import Link, Plan
from tests.plan.random_loops import function, states, view

REDUCE = {"stack": np.stack, "sum": lambda rows: np.sum(rows, 0), "mean": lambda rows: np.mean(rows, 0)}


class Sequential:
    """The memory, and what it was before."""

    def __init__(self, graph: Graph, plan: Plan):
        self.graph, self.plan, self.home = graph, plan, plan.homes(graph)
        self.owner = {var: self.home[node.name] for node in graph.nodes() for var in node.writes}
        self.memory: dict[str, Any] = {}
        self.views: list[dict[str, Any]] = []
        """Of each iteration so far, what they were when it began."""
        self.answers: dict[str, list[Any]] = {}
        """Late variable -> its first value and that of every round."""

    def run(self, iterations: int) -> dict[str, Any]:
        """What is left after so many iterations."""
        for item in self.graph.root.body[:-1]:
            self.visit(item, 0)
        self.answers = {var: [self.memory[var]] for var in states(self.graph) if self.graph.variables[var].late}
        for number in range(iterations):
            self.views.append({name: view(self.memory[each.of]) for name, each in self.graph.views.items()})
            for item in self.graph.iteration.body:
                self.visit(item, number)
        return {name: self.memory[name] for name in states(self.graph)}

    def visit(self, item: Item, index: int) -> None:
        if isinstance(item, Loop) and (index + 1) % item.every:
            for out in item.outputs:  # it does not run in this iteration
                aval = self.graph.variables[out.name].avals[0]
                self.memory[out.name] = np.zeros(aval.shape, aval.dtype)
            return
        if isinstance(item, Loop):
            self.loop(item)
            return
        values = [self.read(item, var) for var in item.reads]
        written = function(self.graph, item)(None, 0, index, *values)
        names = [var for var in item.writes if var not in self.graph.views]
        self.memory.update(zip(names, written, strict=True))
        for var in self.answers.keys() & set(names):
            self.answers[var].append(self.memory[var])

    def loop(self, loop: Loop) -> None:
        rounds: dict[str, list[Any]] = {out.name: [] for out in loop.outputs}
        for step in range(loop.first, loop.first + loop.count):
            for child in loop.body:
                self.visit(child, step)
            for out in loop.outputs:
                rounds[out.name].append(self.memory[out.inner])
        for out in loop.outputs:
            self.memory[out.name] = np.asarray(REDUCE[out.how](rounds[out.name]))

    def read(self, node: Node, var: str) -> Any:
        elsewhere = self.home[node.name] != self.owner.get(var)
        if var in self.graph.views:
            late = self.lag(var) if elsewhere and self.views else 0
            now = view(self.memory[self.graph.views[var].of])
            return self.views[max(0, len(self.views) - 1 - late)][var] if late else now
        if var in self.answers and elsewhere:
            (drawn,) = (write for write in node.writes if write.startswith("drawn"))
            behind = max(self.lag(var), self.lag(drawn))
            return self.answers[var][max(0, len(self.answers[var]) - 1 - behind)]
        return self.memory[var]

    def lag(self, var: str) -> int:
        lag = self.plan.links.get(self.graph.variables[var].link, Link()).lag
        assert isinstance(lag, int)
        return lag
