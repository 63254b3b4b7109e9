"""Workers and channels of a plan without anything that would compute: for a virtual clock, or to be looked at."""

from __future__ import annotations

from collections.abc import Mapping

from motet.engine.virtual import Channel
from motet.engine.worker import Worker
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from motet.plan.route import pieces
from motet.plan.schedule import Schedule, asks_inside, schedule


def schedules_of(graph: Graph, plan: Plan, kinds: Mapping[str, str] | None = None) -> dict[str, Schedule]:
    """What each fragment goes through, on devices of these kinds; without any, on CPUs."""
    return {
        name: schedule(
            graph,
            program,
            plan.fragments[name],
            inside=asks_inside(graph, plan.fragments[name], kinds[name] if kinds else "cpu"),
        )
        for name, program in project(graph, plan).items()
    }


def workers_of(
    graph: Graph, plan: Plan, schedules: Mapping[str, Schedule] | None = None, *, whole: bool = False
) -> tuple[list[Worker], list[Channel]]:
    """Every worker of a plan and every channel. With `whole`, many iterations are one request where they would be."""
    made = schedules or schedules_of(graph, plan)
    alone = whole and sum(each.replicas for each in plan.fragments.values()) == 1
    workers = [
        Worker(
            name if fragment.replicas == 1 else f"{name}[{index}]",
            name,
            index,
            made[name],
            alone and made[name].whole is not None,
        )
        for name, fragment in plan.fragments.items()
        for index in range(fragment.replicas)
    ]
    channels: list[Channel] = []
    for name, program in project(graph, plan).items():
        for wire, _ in wires((*program.start, *program.body)):
            vars = tuple(graph.variables[var] for var in wire.vars)
            senders, receivers = plan.fragments[name].replicas, plan.fragments[wire.target].replicas
            pairs = [(sender, receiver) for sender in range(senders) for receiver in range(receivers)]
            channels += [(wire, s, r) for s, r in pairs if pieces(vars, s, senders, r, receivers)]
    return workers, channels
