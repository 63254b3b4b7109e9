"""Whether a plan's links can be as late as it wants them, and its fragments as whole."""

from __future__ import annotations

from collections.abc import Iterator

from motet.flow.graph import Graph, Loop, walk
from motet.plan.hosts import spanning
from motet.plan.plan import Plan
from motet.plan.project import Ownership
from motet.plan.protocol import Wire, may_be_latest, may_lag


def problems(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """Each link and fragment of which the plan asks what cannot be."""
    yield from _links(graph, plan, owned)
    yield from _fused(graph, plan, owned)


def _links(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    found: dict[str, list[tuple[Loop, Wire]]] = {}
    for loop in (item for item, _ in walk(graph.iteration) if isinstance(item, Loop)):
        for wire in owned.wires_of(loop):
            found.setdefault(wire.link, []).append((loop, wire))
    for name, link in plan.links.items():
        if name not in found:
            cut = ", ".join(sorted(found)) or "none, since nothing is cut"
            if link.lag:
                yield f"link {name!r} is cut nowhere by this plan, so it cannot lag; the links that are cut: {cut}"
            elif name not in {var.link for var in graph.variables.values()}:
                yield f"link {name!r} is for no value of {graph.algorithm}; the links that are cut: {cut}"
            continue
        if link.lag == "latest":
            yield from _never_latest(graph, name, found[name])
            yield from _unlike(plan, name, found[name])
        elif link.lag:
            yield from _never_late(graph, owned, name, found[name])
        limit = graph.max_lag
        if limit is not None and (link.lag == "latest" or (isinstance(link.lag, int) and link.lag > limit)):
            bound = "has no bound" if link.lag == "latest" else f"is {link.lag}"
            yield (
                f"link {name!r}: its lag {bound}, but {graph.algorithm} learns from a lag of at most {limit}: lower "
                "the lag or choose an algorithm that corrects for it"
            )


def _never_late(graph: Graph, owned: Ownership, name: str, found: list[tuple[Loop, Wire]]) -> Iterator[str]:
    """What of a link cannot be late by a number of rounds."""
    for loop, wire in found:
        if may_lag(graph, loop, wire, owned.wires_of(loop)):
            continue
        if not wire.carried:
            why = f"{wire.target!r} reads its value in the round that writes it, so there is none from before"
        elif loop is graph.iteration:
            why = f"{wire.vars[0]!r} goes on from round to round, and an older one would not fit what is there"
        else:
            why = (
                f"{wire.target!r} reads it again in the loop {loop.name!r} inside the iteration, where it would be as "
                "new as in lockstep"
            )
        yield (
            f"link {name!r} cannot lag: {why}. Put the lag on a link that goes back to the start of the loop, such as "
            "'policy' between actors and learner, or on what is drawn ahead, 'sample'"
        )
        return


def _never_latest(graph: Graph, name: str, found: list[tuple[Loop, Wire]]) -> Iterator[str]:
    """What of a link must not be left out, as the latest value leaves out those before it."""
    for _, wire in found:
        if may_be_latest(graph, wire):
            continue
        why = (
            f"every value of {wire.vars[0]!r} counts, and the latest one would leave out those before it"
            if wire.carried
            else f"{wire.target!r} reads its value in the round that writes it, so there is no later one"
        )
        yield (
            f"link {name!r} cannot take the latest value: {why}. Only what is taken from the learner state, such as "
            "'policy', can; give this link a number"
        )
        return


def _unlike(plan: Plan, name: str, found: list[tuple[Loop, Wire]]) -> Iterator[str]:
    """Who would read the latest value of a link on each of several hosts, and find another one on each."""
    for target in sorted({wire.target for _, wire in found} & set(spanning(plan))):
        yield (
            f"link {name!r} cannot take the latest value: {target!r} is one program on {plan.hosts} hosts, and what is "
            "the latest need not be the same on all. Give this link a number"
        )


def _fused(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """What must be one compiled program and is not."""
    cut: dict[str, str] = {}
    for loop in (item for item, _ in walk(graph.iteration) if isinstance(item, Loop)):
        for wire in owned.wires_of(loop):
            cut.setdefault(wire.source, f"sends {wire.link!r} to {wire.target!r}")
            cut.setdefault(wire.target, f"receives {wire.link!r} from {wire.source!r}")
    for name, fragment in plan.fragments.items():
        if fragment.fused and name in cut:
            yield (
                f"fragment {name!r} must be one compiled program (fused), but it {cut[name]} in the middle of its "
                "iteration: set fused to False, or keep all nodes in one fragment"
            )
