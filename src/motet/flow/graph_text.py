"""A graph for people and for other programs: as text for a terminal, as DOT, as a picture, as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import jax

from motet.flow.describe import AXES, bundles, extent, grouped, heading, table, title, type_of
from motet.flow.draw import FILL, svg
from motet.flow.graph import Edge, Graph, Item, Loop, Node, Report, Var

__all__ = ["dot", "svg", "text", "to_json"]

WIDTH = 80


def text(graph: Graph) -> str:
    """The loop nest as a tree, then what its values are, then who gives which value to whom."""
    lag = "any number of iterations" if graph.max_lag is None else f"at most {graph.max_lag} iterations"
    return "\n".join(
        [
            f"{title(graph)}: {extent(graph)}",
            f"The acting policy may be {lag} old.",
            "",
            *_tree(graph, graph.root),
            "",
            *table(("value", "type", "bytes"), _value_rows(graph), "<<>"),
            f"({AXES})",
            "",
            *table(("from, value", "to", "rate", "bytes", ""), _edge_rows(graph), "<<<><"),
            "(carried: read in the round after the one that wrote it)",
        ]
    )


def _tree(graph: Graph, item: Item, stem: str = "", fork: str = "", trunk: str = "") -> Iterator[str]:
    """One item and what is below it. `fork` leads to the item itself, `trunk` to its further lines."""
    children = item.body if isinstance(item, Loop) else ()
    yield stem + fork + heading(graph, item)
    stem += trunk
    margin = stem + ("│  " if children else "   ")
    for label, names in _facts(item):
        yield from textwrap.wrap(
            ", ".join(grouped(names)),
            WIDTH,
            initial_indent=f"{margin}{label:7}",
            subsequent_indent=margin + " " * 7,
            break_long_words=False,
        )
    for left, child in zip(range(len(children), 0, -1), children, strict=True):
        last = left == 1
        yield from _tree(graph, child, stem, "└─ " if last else "├─ ", "   " if last else "│  ")


def _facts(item: Item) -> list[tuple[str, list[str]]]:
    """What a node reads and writes; what a loop makes of its rounds."""
    if isinstance(item, Node):
        facts = [("reads", list(item.reads)), ("writes", list(item.writes))]
    else:
        verbs = {"stack": "stacks", "sum": "sums", "mean": "means"}
        facts = [(verb, [out.name for out in item.outputs if out.how == how]) for how, verb in verbs.items()]
    return [(label, names) for label, names in facts if names]


def _value_rows(graph: Graph) -> Iterator[tuple[str, str, str]]:
    room = max(30, WIDTH - max(map(len, graph.variables)) - 14)
    for var in graph.variables.values():
        first, *more = textwrap.wrap(type_of(graph, var), room) or ["nothing"]
        yield var.name, first, f"{var.nbytes():,}"
        yield from (("", line, "") for line in more)


def _edge_rows(graph: Graph) -> Iterator[tuple[str, str, str, str, str]]:
    """Edges under their producers: both nodes and the value side by side would not fit a narrow terminal."""
    edges = graph.edges()
    for producer in dict.fromkeys(node.name for node in graph.nodes()):
        mine = [edge for edge in edges if edge.producer == producer]
        if mine:
            yield producer, "", "", "", ""
        for edge in mine:
            size = f"{graph.variables[edge.var].nbytes():,}"
            yield f"  {edge.var}", edge.consumer, edge.rate, size, "carried" if edge.carried else ""


def dot(graph: Graph) -> str:
    """Graphviz DOT: loops are nested clusters, edges carry their values, bytes and rate."""
    lines = [
        f"digraph {_quoted(title(graph))} {{",
        '  graph [rankdir=TB, fontname="Helvetica", style="rounded"];',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
        *_clusters(graph, graph.root, "  ", ""),
    ]
    for way, edges in bundles(graph).items():
        label = [f"{edge.var}: {graph.variables[edge.var].nbytes():,} B per {way.rate}" for edge in edges]
        style = ", style=dashed, constraint=false" if way.carried else ""
        lines.append(f"  {_quoted(way.producer)} -> {_quoted(way.consumer)} [label={_quoted(*label)}{style}];")
    return "\n".join([*lines, "}", ""])


def _clusters(graph: Graph, item: Item, indent: str, prefix: str) -> Iterator[str]:
    """An item's lines. What runs before the iteration has a prefix: a DOT node has one cluster only."""
    name = prefix + item.name
    if isinstance(item, Node):
        label = [name] if item.name == item.kind else [name, item.kind]
        yield f'{indent}{_quoted(name)} [label={_quoted(*label)}, fillcolor="{FILL[item.kind]}"];'
        return
    yield f"{indent}subgraph {_quoted('cluster ' + name)} {{"
    yield f"{indent}  label={_quoted(heading(graph, item))};"
    before = item is not graph.iteration and any(item is child for child in graph.root.body)
    for child in item.body:
        yield from _clusters(graph, child, indent + "  ", f"{item.name}/" if before else prefix)
    yield f"{indent}}}"


def _quoted(*lines: str) -> str:
    """A DOT string of these lines."""
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'


def to_json(graph: Graph) -> str:
    """Everything but the nodes' code."""
    data = {
        "algorithm": graph.algorithm,
        "environment": graph.environment,
        "num_envs": graph.num_envs,
        "iterations": graph.iterations,
        "steps_per_iteration": graph.steps_per_iteration,
        "prefill_steps": graph.prefill_steps,
        "max_lag": graph.max_lag,
        "cuts": [cut._asdict() for cut in graph.cuts],
        "divisors": [{"node": node, "count": count} for node, count in graph.divisors],
        "loops": _json_item(graph.root),
        "variables": {name: _json_var(var) for name, var in graph.variables.items()},
        "views": {view.name: view.of for view in graph.views.values()},
        "reports": [_json_report(each) for each in graph.reports],
        "edges": [_json_edge(graph, edge) for edge in graph.edges()],
    }
    return json.dumps(data, indent=2) + "\n"


def _json_item(item: Item) -> dict[str, Any]:
    if isinstance(item, Node):
        return {
            "node": item.name,
            "kind": item.kind,
            "site": item.site,
            "reads": list(item.reads),
            "writes": list(item.writes),
            "statistic": item.statistic,
            "whole": list(item.whole),
        }
    return {
        "loop": item.name,
        "count": item.count,
        "every": item.every,
        "first": item.first,
        "rate": item.rate,
        "outputs": [{"name": out.name, "inner": out.inner, "how": out.how} for out in item.outputs],
        "body": [_json_item(child) for child in item.body],
    }


def _json_var(var: Var) -> dict[str, Any]:
    paths = jax.tree_util.tree_flatten_with_path(var.unpack(var.avals))[0]
    leaves = [
        {
            "path": jax.tree_util.keystr(path),
            "dtype": str(aval.dtype),
            "shape": list(aval.shape),
            "env_axis": axis,
            "time_axis": axis - 1 if axis else None,
            "combine": how,
        }
        for (path, aval), axis, how in zip(paths, var.axes, var.combine, strict=True)
    ]
    return {"link": var.link, "bytes": var.nbytes(), "loop": var.loop, "leaves": leaves}


def _json_report(report: Report) -> dict[str, Any]:
    return {
        "variable": report.var,
        "how": report.how,
        "node": report.node,
        "names": report.names,
        "every": report.every,
    }


def _json_edge(graph: Graph, edge: Edge) -> dict[str, Any]:
    return {
        "producer": edge.producer,
        "consumer": edge.consumer,
        "variable": edge.var,
        "rate": edge.rate,
        "bytes": graph.variables[edge.var].nbytes(),
        "carried": edge.carried,
    }
