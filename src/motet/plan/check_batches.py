"""What a plan may not cut: what a node computes over the whole batch."""

from __future__ import annotations

from collections.abc import Iterator

from motet.flow.graph import Graph, Loop, Node, walk
from motet.plan.plan import Plan
from motet.plan.project import Ownership


def problems(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """Each node, result or link that would be another in pieces."""
    yield from _statistics(graph, plan, owned)
    yield from _pieces(graph, plan, owned)
    yield from _orders(graph, plan, owned)


def _statistics(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """What a node computes over the whole batch and would compute otherwise over a share of it."""
    for site in plan.per_replica:
        if site not in graph.sites():
            known = ", ".join(graph.sites())
            yield f"per_replica names {site!r}, which is no node of {graph.algorithm}; its nodes are {known}"
    for node in graph.sites().values():
        name = owned.home[node.name]
        fragment = plan.fragments[name]
        if node.name in plan.per_replica:
            continue
        accept = f"accept it with per_replica=({node.name!r},)"
        partial = [v for v in node.reads if graph.variables[v].partial and owned.owner[v] == name]
        reads = f"reads {partial[0]!r}, a result over the batch" if partial else ""
        why = "computes a statistic over the batch" if node.statistic else reads
        if why and fragment.replicas > 1:
            yield (
                f"node {node.name!r} {why}, but the {fragment.replicas} replicas of fragment {name!r} each see their "
                f"own share and no collective joins them: use shards, or {accept}"
            )
        if node.draws and fragment.cut.parts > 1 and node.kind == "sample":
            yield (
                f"node {node.name!r} draws from one distribution over all environments, but the {fragment.cut.parts} "
                f"pieces of fragment {name!r} would each draw from their own: keep the node in one piece, or {accept}"
            )
        elif node.draws and fragment.cut.parts > 1:
            yield (
                f"node {node.name!r} draws random numbers for its batch, which the {fragment.cut.parts} pieces of "
                f"fragment {name!r} would draw otherwise: draw them in act, keep the node in one piece, or {accept}"
            )


def _pieces(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """What a node makes of the whole batch and no combination of pieces would give."""
    for node in graph.sites().values():
        name = owned.home[node.name]
        parts = plan.fragments[name].cut.parts
        if parts == 1:
            continue
        more = f" and {len(node.whole) - 1} other results" if len(node.whole) > 1 else ""
        if node.whole and node.kind == "apply":
            read = (graph.variables[var] for var in node.reads)
            links = ", ".join(dict.fromkeys(repr(var.link) for var in read if var.divisible))
            yield (
                f"node {node.name!r} reads {links}, of which each of the {parts} pieces of fragment {name!r} has its "
                f"own rows, and would change the state differently in each: {node.whole[0]}{more}. Compute gradients "
                "in a method for flow.call, whose results are combined over the pieces, use motet.batch_mean and the "
                f"like in {node.name!r}, or keep the node in one piece"
            )
        elif node.whole and node.name not in plan.per_replica:
            yield (
                f"node {node.name!r} returns {node.whole[0]}{more}, which the {parts} pieces of fragment {name!r} "
                "would each compute from their own rows, and no combination of them is that of the whole batch: take "
                "what is over the batch with motet.batch_mean(x, weight), motet.batch_sum, motet.batch_max or "
                "motet.batch_moments, compute the rest in a later flow.call, keep the node in one piece, or accept it "
                f"with per_replica=({node.name!r},)"
            )
        else:
            yield from _averages(graph, node, f"the {parts} pieces of fragment {name!r}")


def _averages(graph: Graph, node: Node, pieces: str) -> Iterator[str]:
    """Results that could only be averaged and are of a type that has no average."""
    for var in (graph.variables[var] for var in node.writes):
        for path, aval, how in zip(var.paths(), var.avals, var.combine, strict=True):
            if how == "mean" and aval.dtype.kind not in "fcV":
                yield (
                    f"node {node.name!r} returns {path} of the type {aval.dtype}, of which {pieces} could only be "
                    "averaged, and such values have no average: return a sum or an extreme over the rows, which "
                    "combine as they are, or a float"
                )


def _orders(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """Rows that lie otherwise in pieces than in the whole batch, and so cannot be joined or cut on the way."""
    for loop in (item for item, _ in walk(graph.root) if isinstance(item, Loop)):
        for wire in owned.wires_of(loop):
            source, target = (plan.fragments[name].cut.parts for name in (wire.source, wire.target))
            for var in (graph.variables[name] for name in wire.vars if source != target):
                if max(var.blocks, default=1) > 1:
                    yield (
                        f"link {wire.link!r}: the rows of {var.name!r} are shuffled within each piece, so they cannot "
                        f"go from the {source} pieces of fragment {wire.source!r} to the {target} of "
                        f"{wire.target!r}: put what makes them and what reads them into one fragment, or give both as "
                        "many pieces"
                    )
