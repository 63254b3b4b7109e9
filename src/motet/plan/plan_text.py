"""A plan for people: who runs what, what is compiled together, and what goes over every link."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from motet.flow.describe import extent, grouped, table, title
from motet.flow.graph import Graph, Node
from motet.plan.collectives import collectives
from motet.plan.hosts import members, members_on, spanning
from motet.plan.places import parse
from motet.plan.plan import Fragment, Plan
from motet.plan.project import Program, Receive, Rounds, Send, Statement, project
from motet.plan.schedule import Ask, Call, Keep, Operation, Schedule, asks_inside, schedule
from motet.plan.traffic import period, traffic

WIDTH = 80


def text(graph: Graph, plan: Plan) -> str:
    """A plan that `check` accepts, as it would run."""
    programs = project(graph, plan)
    alone = sum(fragment.replicas for fragment in plan.fragments.values()) == 1
    lines = [f"{title(graph)}, plan {plan.name}", extent(graph), "", *_fragments(graph, plan), *_hosts(graph, plan)]
    for name, program in programs.items():
        fragment = plan.fragments[name]
        found = schedule(graph, program, fragment, inside=asks_inside(graph, fragment, _platform(fragment)))
        lines += ["", f"{name}: {_copies(graph, fragment)}", *_schedule(found, alone, _asking(fragment))]
    return "\n".join([*lines, "", *_links(graph, plan, programs)])


def _platform(fragment: Fragment) -> str:
    place = parse(fragment.place)
    return place[0] if place else "cpu"


def _asking(fragment: Fragment) -> str:
    """How a program asks host environments. Whether it will be on a CPU is not known of a fragment without a place."""
    return ", which asks the environments" + ("" if fragment.place else " (if on a CPU, else between calls)")


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


def _hosts(graph: Graph, plan: Plan) -> Iterator[str]:
    """What lies where, if there are several hosts."""
    if plan.hosts == 1:
        return
    yield ""
    rows = []
    for host in range(plan.hosts):
        there = {name: members_on(plan, name, host) for name in plan.fragments}
        for number, (name, found) in enumerate((name, each) for name, each in there.items() if each):
            count = members(plan, name)
            share = graph.num_envs // count
            who = name if count == 1 else f"{name}[{_span(found)}]"
            rows.append(("" if number else host, who, f"{found[0] * share}-{(found[-1] + 1) * share - 1}"))
    yield from table(("host", "replicas", "environments"), rows, "><<")


def _span(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _copies(graph: Graph, fragment: Fragment) -> str:
    """How many programs there are, of how many environments each."""
    envs = f"{graph.num_envs // fragment.cut.parts:,} environments"
    if fragment.cut.parts == 1:
        return f"one program, {envs}"
    pieces = [
        f"{count} {what}" for count, what in ((fragment.replicas, "replicas"), (fragment.shards, "shards")) if count > 1
    ]
    return f"{' of '.join(pieces)}, {envs} each"


def _schedule(each: Schedule, alone: bool, asking: str) -> Iterator[str]:
    """What a replica goes through. What is indented under a call is compiled together."""
    if each.start:
        yield "  at the start:"
        yield from _operations(each.start, "    ", asking)
    if alone and each.whole is not None:
        yield f"  many iterations are one compiled call{asking if each.whole.asks else ''}:"
        yield from _operations(each.whole.body, "    ", asking)
    elif each.body:
        yield "  in every iteration:"
        yield from _operations(each.body, "    ", asking)


def _operations(operations: Iterable[Operation | Statement], indent: str, asking: str) -> Iterator[str]:
    for each in operations:
        if isinstance(each, Call):
            yield f"{indent}call{asking if each.asks else ''}:"
            yield from _operations(each.body, indent + "  ", asking)
        elif isinstance(each, Ask):
            yield f"{indent}ask the environments: {each.node.name}"
        elif isinstance(each, Keep):
            yield f"{indent}ask the replay: {each.node.name}"
        elif isinstance(each, Node):
            yield indent + each.name
        elif isinstance(each, Rounds):
            yield f"{indent}{each.name} ×{each.count:,}{_which(each.every)}"
            yield from _operations(each.body, indent + "  ", asking)
        else:
            words = f"{_verb(each)}: {', '.join(grouped(each.wire.vars))}"
            yield from textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=indent + "    ")


def _which(every: int) -> str:
    return "" if every == 1 else f", in one iteration of {every}"


def _verb(step: Send | Receive) -> str:
    """To or from whom, and which round's value, where it is not this one's."""
    wire = step.wire
    if isinstance(step, Send):
        return f"send to {wire.target}{' for the next round' if wire.carried else ''}"
    if wire.lag == "latest":
        return f"receive from {wire.source} the latest"
    if not wire.carried:
        return f"receive from {wire.source}" + (f", which is up to {wire.lag} ahead" if wire.lag else "")
    return f"receive from {wire.source} of the round before" + (f", lag {wire.lag}" if wire.lag else "")


def _links(graph: Graph, plan: Plan, programs: dict[str, Program]) -> list[str]:
    found = traffic(graph, plan, programs, period(graph))
    rows = [
        (row.link, row.source, row.target, row.rate, f"{row.messages:,}", f"{row.bytes:,}", row.lag) for row in found
    ]
    if not rows:
        return ["Nothing is cut: no link carries anything.", *_collectives(graph, plan)]
    header = ("link", "from", "to", "rate", "messages", "bytes", "lag")
    each = "one iteration" if period(graph) == 1 else f"{period(graph)} iterations"
    lines = [*table(header, rows, "<<<<>>>"), f"(messages and bytes are for {each})"]
    if plan.hosts > 1:
        crossing = {row.link: 0 for row in found}
        for row in found:
            crossing[row.link] += row.crossing
        total = sum(crossing.values())
        parts = ", ".join(f"{link} {size:,}" for link, size in crossing.items() if size)
        lines.append(f"Between hosts, {each} sends {total:,} bytes{f': {parts}' if parts else ''}.")
    return [*lines, *_collectives(graph, plan)]


def _collectives(graph: Graph, plan: Plan) -> Iterator[str]:
    """What is exchanged inside of programs that span hosts."""
    each = "one iteration" if period(graph) == 1 else f"{period(graph)} iterations"
    found = collectives(graph, plan)
    for name in spanning(plan):
        sizes = {exchange.node: exchange.bytes for exchange in found if exchange.fragment == name}
        parts = ", ".join(f"{node} {size:,}" for node, size in sizes.items())
        yield (
            f"{name} is one program on {plan.hosts} hosts: in {each} its collectives combine {sum(sizes.values()):,} "
            f"bytes{f': {parts}' if parts else ''}."
        )


def node_table(graph: Graph, plan: Plan) -> dict[str, list[Node]]:
    """Fragment -> the sites it runs."""
    home = plan.homes(graph)
    return {name: [n for n in graph.sites().values() if home[n.name] == name] for name in plan.fragments}
