"""What must go over the links of a plan, found by running the loop with versions in the place of values.

Whoever reads a value that it does not have in its newest version asks its owner for it. Nothing here knows of
projection, of wires or of how messages are cut: a loop is walked round by round, and bytes follow from shapes.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from motet.flow.graph import Graph, Item, Loop, Var
from motet.plan.plan import Plan

Way = tuple[str, str, str]
"""Link, source and target."""


def bytes_of_an_iteration(graph: Graph, plan: Plan) -> dict[Way, int]:
    """The bytes that go each way in an iteration that is not the first."""
    walk = Walk(graph, plan)
    for item in graph.root.body:
        walk.visit(item)
    walk.bytes.clear()
    walk.visit(graph.iteration)
    return dict(walk.bytes)


class Walk:
    """Which fragment holds which version of which variable, and what was asked for."""

    def __init__(self, graph: Graph, plan: Plan):
        self.graph, self.plan, self.home = graph, plan, plan.homes(graph)
        self.versions: Counter[str] = Counter()
        self.owner: dict[str, str] = {}
        self.held: dict[tuple[str, str], int] = {}
        self.bytes: Counter[Way] = Counter()

    def visit(self, item: Item) -> None:
        if isinstance(item, Loop):
            for _ in range(item.count):
                for child in item.body:
                    self.visit(child)
            for out in item.outputs:
                self.write(out.name, self.owner[out.inner])
            return
        for var in item.reads:
            self.read(var, self.home[item.name])
        for var in item.writes:
            self.write(var, self.home[item.name])

    def read(self, var: str, reader: str) -> None:
        owner = self.owner[var]
        if reader == owner or self.held.get((reader, var)) == self.versions[var]:
            return
        self.held[reader, var] = self.versions[var]
        senders, receivers = (self.plan.fragments[name].replicas for name in (owner, reader))
        self.bytes[var.split(".")[0], owner, reader] += size(self.graph.variables[var], senders, receivers)

    def write(self, var: str, writer: str) -> None:
        self.versions[var] += 1
        self.owner[var] = writer


def size(var: Var, senders: int, receivers: int) -> int:
    """The bytes that bring a variable from all replicas of one fragment to all of another."""
    total = 0
    for aval, axis, partial in zip(var.avals, var.axes, var.combine, strict=True):
        whole = prod(aval.shape) * aval.dtype.itemsize
        # Everyone sends its part of a result to everyone; of what is the same everywhere, each gets one copy.
        copies = senders * receivers if partial else receivers
        total += whole if axis is not None else whole * copies  # a row goes to the one that has its environment
    return total
