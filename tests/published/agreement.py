"""Whether an algorithm learns the same under every plan that takes it, and which plans do not."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import numpy as np

import motet
from motet.engine.run import Outcome, gather
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.plan.check import violations
from motet.plan.plan import Plan
from motet.plan.project import Ownership
from tests.laws.cases import assert_close, assert_traffic, run

PLANS: dict[str, Plan] = {
    "anakin-2": motet.anakin(2),
    "sebulba-2": motet.sebulba(threads=2, lag=0),
    "batched": motet.batched(workers=0),
    "coarse-2": motet.coarse(2),
    "coarse-2-sharded": motet.coarse(2, learners=2),
    "fine-2": motet.fine(2),
    "central-2": motet.central(2),
    "multi_learner-4": motet.multi_learner(4),
    "pearl-2": motet.pearl(2, lag=0),
    "pearl-host": motet.pearl(lag=0, replay="host"),
    "pearl-opencl": motet.pearl(lag=0, replay="opencl:0"),
}
"""Every preset, and one of each kind of cut, all without lag."""


CUTS = tuple(dict.fromkeys(cut for plan in PLANS.values() for cut in plan.cuts()))


@functools.cache
def traced(algorithm: Algorithm, env: Any, iterations: int) -> Graph:
    """The graph for all plans, and with all environments in one piece: to trace it for one takes nearly as long."""
    return trace(algorithm, env, iterations=iterations, cuts=CUTS)


@functools.cache
def whole(algorithm: Algorithm, env: Any, iterations: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Every state, and all metrics, of the run that nothing cuts."""
    graph = traced(algorithm, env, iterations)
    outcome, watcher = run(graph, motet.anakin(), iterations=iterations)
    return states(graph, motet.anakin(), outcome), watcher.seen


def states(graph: Graph, plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """What is carried from iteration to iteration, where its owner has it; what is in a replay shows in what is learned
    from it."""
    owner = Ownership(graph, plan).owner
    made = {var for node in graph.nodes() if node.kind == "init" for var in node.writes}
    read = {var for node in graph.nodes() for var in node.reads}
    names = sorted((made & read) - set(graph.views) - {"replay", "priorities"})
    return {
        name: gather(graph, replace(outcome, variables={owner[name]: outcome.variables[owner[name]]}), name)
        for name in names
    }


def refusals(algorithm: Algorithm, env: Any, plan: str, iterations: int) -> list[str]:
    """Why a plan cannot run it; empty: it can."""
    return violations(traced(algorithm, env, iterations), PLANS[plan], jax.device_count())


def assert_agrees(algorithm: Algorithm, env: Any, plan: str, iterations: int, mode: Any = "threads") -> None:
    """Every state and every metric are those of the whole run, and what is sent is what the table says."""
    graph = traced(algorithm, env, iterations)
    outcome, watcher = run(graph, PLANS[plan], iterations=iterations, mode=mode)
    expected, rows = whole(algorithm, env, iterations)
    found = states(graph, PLANS[plan], outcome)
    assert found.keys() == expected.keys()
    for name in found:
        assert_close(found[name], expected[name])
    assert_close(watcher.seen, rows)
    assert np.isfinite(np.asarray(watcher.seen)).all()
    assert_traffic(graph, PLANS[plan], outcome, iterations)
