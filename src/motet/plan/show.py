"""A plan for people: who runs what, each fragment's program, and what goes over every link."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from motet.flow.describe import extent, grouped, table, title
from motet.flow.graph import Graph, Node
from motet.plan.plan import Fragment, Plan
from motet.plan.project import Program, Recv, Rounds, Send, Step, project
from motet.plan.traffic import period, traffic

WIDTH = 80


def text(graph: Graph, plan: Plan) -> str:
    """A plan that `check` accepts, as it would run."""
    programs = project(graph, plan)
    lines = [f"{title(graph)}, plan {plan.name}", extent(graph), "", *_fragments(graph, plan)]
    for name, program in programs.items():
        lines += ["", f"{name}: {_copies(graph, plan.fragments[name])}", *_program(program)]
    return "\n".join([*lines, "", *_links(graph, plan, programs)])


def _fragments(graph: Graph, plan: Plan) -> list[str]:
    nodes = node_table(graph, plan)
    rows = [
        (name, each.replicas, each.shards, each.place or "any", ", ".join(node.name for node in nodes[name]))
        for name, each in plan.fragments.items()
    ]
    lines = table(("fragment", "replicas", "shards", "place", "nodes"), rows, "<>><<")
    if plan.per_replica:
        lines.append(f"(statistics over one replica's share of the batch: {', '.join(plan.per_replica)})")
    return lines


def _copies(graph: Graph, fragment: Fragment) -> str:
    """How many programs there are, of how many environments each."""
    envs = f"{graph.num_envs // fragment.cut.parts:,} environments"
    if fragment.cut.parts == 1:
        return f"one program, {envs}"
    pieces = [
        f"{count} {what}" for count, what in ((fragment.replicas, "replicas"), (fragment.shards, "shards")) if count > 1
    ]
    return f"{' of '.join(pieces)}, {envs} each"


def _program(program: Program) -> Iterator[str]:
    for heading, steps in (("at the start", program.start), ("in every iteration", program.body)):
        if steps:
            yield f"  {heading}:"
            yield from _steps(steps, "    ")


def _steps(steps: Iterable[Step], indent: str) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Node):
            yield indent + step.name
        elif isinstance(step, Rounds):
            yield f"{indent}{step.name} ×{step.count:,}"
            yield from _steps(step.body, indent + "  ")
        else:
            words = f"{_verb(step)}: {', '.join(grouped(step.wire.vars))}"
            yield from textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent + "    ")


def _verb(step: Send | Recv) -> str:
    """To or from whom, and which round's value, where it is not this one's."""
    wire = step.wire
    if isinstance(step, Send):
        return f"send to {wire.target}{' for the next round' if wire.carried else ''}"
    if wire.lag == "latest":
        return f"receive from {wire.source} the latest"
    return f"receive from {wire.source}{' of the round before' if wire.carried else ''}" + (
        f", lag {wire.lag}" if wire.lag else ""
    )


def _links(graph: Graph, plan: Plan, programs: dict[str, Program]) -> list[str]:
    rows = [
        (row.link, row.source, row.target, row.rate, f"{row.messages:,}", f"{row.bytes:,}", row.lag)
        for row in traffic(graph, plan, programs, period(graph))
    ]
    if not rows:
        return ["Nothing is cut: no link carries anything."]
    header = ("link", "from", "to", "rate", "messages", "bytes", "lag")
    each = "one iteration" if period(graph) == 1 else f"{period(graph)} iterations"
    return [*table(header, rows, "<<<<>>>"), f"(messages and bytes are for {each})"]


def node_table(graph: Graph, plan: Plan) -> dict[str, list[Node]]:
    """Fragment -> the sites it runs."""
    home = plan.homes(graph)
    return {name: [n for n in graph.sites().values() if home[n.name] == name] for name in plan.fragments}
