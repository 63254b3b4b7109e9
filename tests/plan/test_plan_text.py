"""What `motet plan` shows of host environments is what the engine does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import pytest

import motet
from motet.engine.assemble import Settings, assemble
from motet.flow.graph import Graph
from motet.plan.plan import Fragment, Plan
from motet.plan.plan_text import text
from motet.plan.schedule import Call, Operation, Rounds
from tests.laws import host_envs

OPEN = ", which asks the environments (if on a CPU, else between calls):"
SAID = ", which asks the environments:"
BETWEEN = "ask the environments: env"


@cache
def graph() -> Graph:
    return motet.trace(motet.A2C(num_envs=4, num_steps=2, hidden=(4,)), motet.Gymnasium(host_envs.Corridor))


def plan(replicas: int = 1, **how: object) -> Plan:
    actors = replace(Fragment(("act", "env"), replicas=replicas), **how)  # type: ignore[arg-type]
    return Plan({"actors": actors, "learner": Fragment(("*",))})


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        (plan(), OPEN),
        (plan(inside=True), OPEN),
        (plan(inside=False), BETWEEN),
        (plan(2), BETWEEN),
        (plan(2, inside=True), OPEN),
        (plan(place="cpu:1"), SAID),
        (plan(2, inside=True, place="cpu:1"), SAID),
        (plan(place="cuda:0"), BETWEEN),
        (plan(inside=True, place="cuda:0"), BETWEEN),
        (motet.anakin(), f"many iterations are one compiled call{OPEN}"),
    ],
)
def test_it_is_shown_who_asks_host_environments(shown: Plan, what: str) -> None:
    found = text(graph(), shown)
    assert what in found
    assert sum(phrase in found for phrase in (OPEN, SAID, BETWEEN)) == 1


@pytest.mark.parametrize("shown", [plan(), plan(inside=False), plan(2), plan(2, inside=True), plan(place="cpu:1")])
def test_what_is_shown_is_what_runs_on_a_cpu(shown: Plan) -> None:
    run = assemble(graph(), shown, {"cpu": jax.devices()}, Settings())
    assert asks(run.schedules["actors"].body) == (BETWEEN not in text(graph(), shown))
    run.close()


def asks(operations: tuple[Operation, ...]) -> bool:
    """Whether some call steps host environments from inside."""
    return any(
        asks(each.body) if isinstance(each, Rounds) else isinstance(each, Call) and each.asks  # type: ignore[arg-type]
        for each in operations
    )
