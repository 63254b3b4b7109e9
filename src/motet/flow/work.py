"""How much a node of the graph computes, read off its program: for devices that are not here to be asked.

XLA's own analysis of a compiled program counts the body of a loop once, however often it runs, and needs a compiler for
the device. Here every equation counts as often as it is run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from motet.flow.graph import Node


@dataclass(frozen=True)
class Work:
    """What a program does."""

    flops: float = 0.0
    bytes: float = 0.0
    """That go between a device and its memory: operands and results of what XLA does not fuse away."""
    operations: float = 0.0
    """That must come one after the other, however small they are."""

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.operations + other.operations)

    def times(self, count: float) -> Work:
        return Work(self.flops * count, self.bytes * count, self.operations * count)

    def share(self, parts: float) -> Work:
        """Of one piece of a batch: less to do, in as many operations."""
        return Work(self.flops / parts, self.bytes / parts, self.operations)


APART = ("reduce", "arg", "cum", "sort", "gather", "scatter", "dynamic", "concatenate", "top_k", "random", "threefry")
"""Beginnings of the names of operations that XLA runs by themselves; others are fused with what is around them."""


def node_work(node: Node) -> Work:
    """Of one run of a node with all environments; of one that has no program, nothing."""
    if not node.code:
        return Work()
    cut = min(node.code)
    return jaxpr_work(node.code[cut].jaxpr).times(1.0) + Work(0.0, 0.0, 1.0)


def equations(jaxpr: Any) -> int:
    """How many there are, those of inner programs included."""
    return sum(1 + sum(map(equations, _inner(each.params))) for each in jaxpr.eqns)


def jaxpr_work(jaxpr: Any) -> Work:
    total = Work()
    for equation in jaxpr.eqns:
        total += _equation(equation)
    return total


def _equation(equation: Any) -> Work:
    name, params = equation.primitive.name, equation.params
    inner = [jaxpr_work(each) for each in _inner(params)]
    if name == "scan":
        return inner[0].times(params["length"])
    if name == "cond":
        return max(inner, key=lambda work: work.flops + work.bytes, default=Work())
    if inner:
        return sum(inner, Work())
    out = sum(math.prod(var.aval.shape) for var in equation.outvars if hasattr(var.aval, "shape"))
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        length = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return Work(2.0 * out * length, _bytes(equation), 1.0)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = params["dimension_numbers"].rhs_spec[0]
        return Work(2.0 * out * math.prod(kernel) / kernel[features], _bytes(equation), 1.0)
    if name.startswith(APART):
        return Work(float(out), _bytes(equation), 1.0)
    return Work(float(out))


def _inner(params: Any) -> Iterator[Any]:
    """The programs inside of an equation."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                yield each


def _bytes(equation: Any) -> float:
    arrays = [var.aval for var in (*equation.invars, *equation.outvars) if hasattr(var.aval, "shape")]
    return float(sum(math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 4) for aval in arrays))
