"""How many messages and bytes each link carries in so many iterations, known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm, prod

from motet.flow.graph import Graph, Loop
from motet.plan.hosts import hosts_of
from motet.plan.plan import Lag, Plan
from motet.plan.project import Program, Rounds, wires
from motet.plan.protocol import Wire, rounds_sent
from motet.plan.route import nbytes, routes


@dataclass(frozen=True)
class Traffic:
    """What goes over one link, between two fragments."""

    link: str
    source: str
    target: str
    messages: int
    bytes: int
    lag: Lag
    rate: str
    crossing: int = 0
    """How many of the bytes go from one host to another."""


def traffic(graph: Graph, plan: Plan, programs: Mapping[str, Program], iterations: int = 1) -> list[Traffic]:
    """What the first `iterations` send: one row for each link and pair of fragments, in the order of the programs."""
    rows: dict[tuple[str, str, str], Traffic] = {}
    for program in programs.values():
        for wire, around in wires(program.body):
            sizes, crossing = message_sizes(graph, plan, wire), _crossing(graph, plan, wire)
            rounds = prod(loop.count for loop in around[:-1]) * _sends(wire, around)
            rounds *= iterations // prod(loop.every for loop in around)
            old = rows.get((wire.link, wire.source, wire.target))
            rows[wire.link, wire.source, wire.target] = Traffic(
                wire.link,
                wire.source,
                wire.target,
                len(sizes) * rounds + (old.messages if old else 0),
                sum(sizes) * rounds + (old.bytes if old else 0),
                wire.lag or (old.lag if old else 0),
                _faster(around[-1].rate if around else "iteration", old.rate if old else "iteration"),
                sum(crossing) * rounds + (old.crossing if old else 0),
            )
    return list(rows.values())


def message_sizes(graph: Graph, plan: Plan, wire: Wire) -> list[int]:
    """The bytes of each message of one round, one for each pair of members that talk."""
    return list(_messages(graph, plan, wire).values())


def _crossing(graph: Graph, plan: Plan, wire: Wire) -> list[int]:
    """The bytes of those messages of one round that go from one host to another."""
    senders, receivers = hosts_of(plan, wire.source), hosts_of(plan, wire.target)
    return [size for (s, r), size in _messages(graph, plan, wire).items() if senders[s] != receivers[r]]


def _messages(graph: Graph, plan: Plan, wire: Wire) -> dict[tuple[int, int], int]:
    """Sender and receiver of each message of one round -> its bytes."""
    vars = tuple(graph.variables[name] for name in wire.vars)
    return {pair: nbytes(vars, each) for pair, each in routes(graph, plan, wire).items()}


def _sends(wire: Wire, around: tuple[Rounds, ...]) -> int:
    """How often a wire is used in one run of the loop around it."""
    return rounds_sent(wire, around[-1].count) if around else 1


def period(graph: Graph) -> int:
    """After how many iterations traffic repeats itself."""
    return lcm(*(item.every for item in graph.iteration.body if isinstance(item, Loop)))


def _faster(a: str, b: str) -> str:
    order = ("step", "update", "iteration", "run")
    return min(a, b, key=order.index)
