"""What programs that span hosts exchange inside of XLA, known before anything runs.

They exchange results over the batch, such as gradients, where a node's pieces are combined, and statistics of the whole
batch inside of nodes. Whoever computes adds a few numbers of its own: metrics that are summed over environments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from motet.flow.batch import SHARDS
from motet.flow.graph import Cut, Graph, Node
from motet.flow.jaxprs import jaxprs_in_params
from motet.plan.hosts import spanning
from motet.plan.plan import Plan
from motet.plan.project import Rounds, Statement, project
from motet.plan.traffic import period


@dataclass(frozen=True)
class Collective:
    """What the pieces of one node combine, in so many iterations as traffic needs to repeat itself."""

    fragment: str
    node: str
    bytes: int
    """Of the results: how often each of them goes over the network depends on how the hosts add them up. In a ring of
    two, each host sends them once."""


def collectives(graph: Graph, plan: Plan) -> list[Collective]:
    """Of every fragment that spans hosts, the nodes whose pieces meet."""
    programs = project(graph, plan)
    found = []
    for name in spanning(plan):
        cut = plan.fragments[name].cut
        sizes: dict[str, int] = {}
        for node, rounds in _nodes(programs[name].body, period(graph)):
            sizes[node.name] = sizes.get(node.name, 0) + rounds * (_results(graph, node) + _statistics(node, cut))
        found += [Collective(name, node, size) for node, size in sizes.items() if size]
    return found


def _nodes(statements: Iterable[Statement], times: int) -> Iterator[tuple[Node, int]]:
    """Each node, and in how many rounds it is used."""
    for each in statements:
        if isinstance(each, Node):
            yield each, times
        elif isinstance(each, Rounds):
            yield from _nodes(each.body, times * each.count // each.every)


def _results(graph: Graph, node: Node) -> int:
    """The bytes of what a node gives of the whole batch."""
    vars = [graph.variables[name] for name in node.writes if name not in graph.views]
    leaves = [(aval, how) for var in vars for aval, how in zip(var.avals, var.combine, strict=True) if how]
    # Whether any or all are true is counted, in whole numbers.
    return sum(prod(aval.shape) * (4 if how in ("any", "all") else aval.dtype.itemsize) for aval, how in leaves)


def _statistics(node: Node, cut: Cut) -> int:
    """The bytes of what a node asks of the whole batch on its way."""
    code = node.code.get(cut)
    return 0 if code is None or not hasattr(code, "jaxpr") else _inside(code.jaxpr)


def _inside(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [_inside(each) for each in jaxprs_in_params(equation.params)]
        if equation.primitive.name == "cond":
            total += max(inner, default=0)
        else:
            total += sum(inner) * equation.params.get("length", 1)
        if _meets(equation):
            total += sum(_nbytes(var.aval) for var in equation.outvars)
    return total


def _meets(equation: Any) -> bool:
    """Whether an operation is one of all shards together."""
    names: Any = equation.params.get("axes", equation.params.get("axis_name", ()))
    over: Sequence[Any] = names if isinstance(names, tuple | list) else (names,)
    return SHARDS in over and equation.primitive.name != "axis_index"


def _nbytes(aval: Any) -> int:
    return prod(aval.shape) * aval.dtype.itemsize
