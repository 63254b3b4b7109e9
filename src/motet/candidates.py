"""Which plans the planner chooses from: what fits, what is permitted, and what did not raise while it was profiled."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace

from motet.engine.estimate import floor
from motet.engine.profile import items_of
from motet.engine.raised import Raised, needed
from motet.flow.graph import Graph
from motet.plan import search
from motet.plan.check import violations
from motet.plan.cost import Book
from motet.plan.hosts import over
from motet.plan.machine import Machine
from motet.plan.objective import Objective
from motet.plan.plan import Plan
from motet.plan.search import Candidates, Permitted, Refused

KEPT = 200
"""Of more candidates than can be looked at, those that are."""


def permitted(graph: Graph, machine: Machine, lag: int | None = None) -> Permitted:
    """What candidates may have, if nobody says otherwise or says how much lag."""
    usual = 1 if graph.max_lag is None else 0
    return Permitted(usual if lag is None else lag, _replays(machine))


def candidates(graph: Graph, machine: Machine, may: Permitted, wanted: Objective | None = None) -> Candidates:
    """All that fit; of too many, those around the ones that look best by the model, for what is wanted."""
    options = search.values(graph, machine, may)
    if search.count(options, machine) <= search.EXHAUSTIVE:
        return search.candidates(graph, machine, may)
    book, goal = Book(graph, machine), wanted or Objective()

    def score(plan: Plan) -> float | None:
        fits = search.sift(graph, machine, [plan]).plans
        return goal.best(floor(graph, plan, book), graph.steps_per_iteration, watts(plan, machine)) if fits else None

    found = search.beam(options, machine, score, keep=KEPT)
    return Candidates(tuple(plan for plan, _ in found.best), words=found.words)


def watts(plan: Plan, machine: Machine) -> float:
    """What a plan draws if all that it lies on is always busy."""
    total = machine.hosts * (machine.idle_watts + sum(each.count * each.idle_watts for each in machine.devices))
    for name, count in needed(plan, machine).items():
        device = machine.device(name.partition(":")[0])
        if device is not None:
            # A processor's figures are those of a core, of which each replica has one.
            total += min(count, machine.cores * machine.hosts) * (device.watts - device.idle_watts)
    return total


def against(graph: Graph, machine: Machine, raised: Raised, hosts: int | None = None) -> Callable[[Plan], str]:
    """What speaks against a plan that fits the machine: it cannot lie over so many hosts, or was seen to raise."""
    one = replace(machine, hosts=1).counts

    def found(plan: Plan) -> str:
        if hosts is not None and hosts > 1:
            problems = violations(graph, over(plan, hosts), one, traced=False)
            if problems:
                return problems[0]
        return raised.against(plan, machine, lambda: items_of(graph, plan, machine.devices[0].kind))

    return found


def without(found: Candidates, against: Callable[[Plan], str]) -> Candidates:
    """Those that nothing speaks against."""
    reasons = {plan: against(plan) for plan in found.plans}
    refused = tuple(Refused(plan, (reason,)) for plan, reason in reasons.items() if reason)
    plans = tuple(plan for plan in found.plans if not reasons[plan])
    return replace(found, plans=plans, refused=(*found.refused, *refused))


def _replays(machine: Machine) -> tuple[str | None, ...]:
    """Where a replay may lie: on a device of JAX, in the host's memory, or on an FPGA if there is one."""
    host: tuple[str | None, ...] = ("host",) if importlib.util.find_spec("numba") else ()
    return (None, *host, *(("opencl:0",) if machine.device("fpga") else ()))
