"""The words for a graph's parts, which all its forms share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from motet.flow.graph import Edge, Graph, Loop, Node, Rate, Var

AXES = "T time, B environments, N items drawn from both"


def title(graph: Graph) -> str:
    return f"{graph.algorithm} on {graph.environment}"


def extent(graph: Graph) -> str:
    """How much there is to do."""
    before = f"prefill {graph.prefill_steps:,}, " if graph.prefill_steps else ""
    return (
        f"{graph.num_envs:,} environments, {before}{graph.iterations:,} iterations of "
        f"{graph.steps_per_iteration:,} steps"
    )


def rounds(graph: Graph, loop: Loop) -> int:
    """How often a loop's body runs each time the loop is entered."""
    return graph.iterations if loop is graph.iteration else loop.count


def heading(graph: Graph, item: Node | Loop) -> str:
    """A node with its kind, or a loop with its count."""
    if isinstance(item, Node):
        return f"{item.name} ({item.kind}{', a statistic over the batch' if item.statistic else ''})"
    if item.every > 1:
        return f"{item.name} {item.every:,} iterations"
    return f"{item.name} ×{rounds(graph, item):,}"


def type_of(graph: Graph, var: Var, most: int = 4) -> str:
    """A variable's arrays, equal ones counted: `float32[T=128,B=64,4] 2×float32[T=128,B=64]`."""
    kinds = Counter(
        f"{aval.dtype}[{','.join(_dimensions(graph, aval.shape, axis))}]"
        for aval, axis in zip(var.avals, var.axes, strict=True)
    )
    if len(kinds) > most:
        return f"{len(var.avals)} arrays"
    return " ".join(kind if count == 1 else f"{count}×{kind}" for kind, count in kinds.items())


def _dimensions(graph: Graph, shape: tuple[int, ...], axis: int | None) -> Iterator[str]:
    """Each dimension's size, with the letter of its axis. Before the environments there is only time."""
    for place, size in enumerate(shape):
        if axis is not None and place == axis:
            yield f"{'B' if size == graph.num_envs else 'N'}={size}"
        elif axis is not None and place == axis - 1:
            yield f"T={size}"
        else:
            yield str(size)


def grouped(names: Iterable[str]) -> list[str]:
    """Names with a common first part, together: a.x, a.y, b -> a.{x, y}, b."""
    groups: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition(".")
        groups.setdefault(first, []).append(rest)
    out = []
    for first, rests in groups.items():
        if len(rests) > 1 and all(rests):
            out.append(f"{first}.{{{', '.join(rests)}}}")
        else:
            out += [f"{first}.{rest}" if rest else first for rest in rests]
    return out


class Way(NamedTuple):
    """From where to where, how often, and whether into the next round."""

    producer: str
    consumer: str
    rate: Rate
    carried: bool


def bundles(graph: Graph) -> dict[Way, list[Edge]]:
    """The edges that go the same way, together."""
    found: dict[Way, list[Edge]] = {}
    for edge in graph.edges():
        found.setdefault(Way(edge.producer, edge.consumer, edge.rate, edge.carried), []).append(edge)
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[object]], align: str, indent: str = "") -> list[str]:
    """Lines of aligned columns under a rule; `align` has a `<` or `>` for each column."""
    cells = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]

    def line(row: Sequence[str]) -> str:
        return indent + "  ".join(f"{cell:{a}{w}}" for cell, a, w in zip(row, align, widths, strict=True)).rstrip()

    return [line(header), line(["─" * width for width in widths]), *map(line, cells)]
