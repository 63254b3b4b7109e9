"""Random loop nests, cut at random and run under random schedules, compute what the sequential loop computes.

What is tested is which plans are accepted, projection, routing, the rules of wires, channels and the interpreter. The
nodes are plain functions of numbers, so thousands of rounds cost nothing; a few loops are compiled as well.
"""

from __future__ import annotations

import random
import time
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from motet.flow.graph import Graph, Node, exposed
from motet.plan.check import violations
from motet.plan.plan import Fragment, Link, Plan
from motet.plan.project import project, wires
from motet.plan.traffic import period, traffic
from tests.laws.cases import owned, run
from tests.laws.demand import bytes_of_an_iteration
from tests.plan.random_loops import ITERATIONS, Maker, states
from tests.plan.sequential import Sequential

SEEDS = st.integers(0, 2**32)


def cut(graph: Graph, chance: random.Random, shards: bool = False) -> Plan:
    """Put every node into one of a few fragments, all writers of one state into the same; replicate what may be."""
    group: dict[str, str] = {}

    def leader(name: str) -> str:
        while group.get(name, name) != name:
            name = group[name]
        return name

    for node in graph.nodes():
        for var in node.writes:
            group[leader(node.name)] = leader(f"var {var}")
    count, home, nodes = chance.randint(2, 4), {}, {}
    for node in graph.nodes():
        place = home.setdefault(leader(node.name), f"fragment{chance.randrange(count)}")
        nodes.setdefault(place, []).append(node.name)
    plan = Plan({name: Fragment(tuple(names)) for name, names in nodes.items()})
    for name, fragment in plan.fragments.items():
        some = {"replicas": chance.choice([1, 2, 4]), "shards": chance.choice([1, 2]) if shards else 1}
        wider = Plan({**plan.fragments, name: Fragment(fragment.nodes, **some)})
        plan = plan if violations(graph, wider) else wider
    return plan


def with_lags(graph: Graph, plan: Plan, chance: random.Random) -> Plan:
    """Let some links lag, wherever that is accepted."""
    for link in sorted({var.link for var in graph.variables.values()}):
        if chance.random() < 0.7:
            later = Plan(plan.fragments, {**plan.links, link: Link(chance.randint(1, 3))})
            plan = plan if violations(graph, later) else later
    return plan


def make(seed: int, lags: bool = False, shards: bool = False) -> tuple[Graph, Plan]:
    chance = random.Random(seed)
    graph = Maker(chance).graph()
    plan = cut(graph, chance, shards)
    plan = with_lags(graph, plan, chance) if lags else plan
    assert not violations(graph, plan)
    return graph, plan


def assert_as_sequential(graph: Graph, plan: Plan, compiled: bool = False, **options: Any) -> None:
    """The same states in the end. Compiled programs keep those alone that a further iteration would read."""
    outcome, _ = run(graph, plan, iterations=ITERATIONS, timeout=30, compiled=compiled, **options)
    wanted = exposed(graph.iteration.body)
    names = [name for name in states(graph) if not compiled or {name, f"view of {name}"} & wanted]
    ours = {name: np.asarray(owned(graph, plan, outcome, name)).tolist() for name in names}
    expected = Sequential(graph, plan).run(ITERATIONS)
    assert ours == {name: np.asarray(expected[name]).tolist() for name in names}


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_random_cuts_of_random_loops_equal_the_sequential_run(seed: int) -> None:
    graph, plan = make(seed)
    assert_as_sequential(graph, plan, mode="serial", seed=seed)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_where_links_lag_every_value_is_as_late_as_the_plan_says(seed: int) -> None:
    graph, plan = make(seed, lags=True)
    assert_as_sequential(graph, plan, mode="serial", seed=seed)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_random_cuts_run_the_same_in_threads_under_random_delays(seed: int) -> None:
    graph, plan = make(seed, lags=True)
    wait = random.Random(seed + 1)
    assert_as_sequential(graph, plan, delay=lambda name: time.sleep(wait.random() * 0.002))


SHARDED = [
    seed for seed in range(1000, 1020) if any(f.shards > 1 for f in make(seed, True, True)[1].fragments.values())
]


@pytest.mark.parametrize("seed", SHARDED[:8])
def test_compiled_and_sharded_fragments_compute_the_same(seed: int) -> None:
    graph, plan = make(seed, lags=True, shards=True)
    assert_as_sequential(graph, plan, compiled=True, mode="serial" if seed % 2 else "threads")


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_what_is_sent_is_what_readers_ask_for(seed: int) -> None:
    """No message goes to its sender, none carries what its receiver computes itself, and no byte is sent in vain."""
    graph, plan = make(seed, lags=True, shards=True)
    home = plan.homes(graph)
    programs = project(graph, plan)
    for program in programs.values():
        for wire, _ in wires((*program.start, *program.body)):
            assert wire.source == program.fragment != wire.target
            writers = {home[node.name] for node in graph.nodes() for var in wire.vars if var in node.writes}
            assert wire.target not in writers
    if period(graph) == 1:
        table = {(row.link, row.source, row.target): row.bytes for row in traffic(graph, plan, programs)}
        assert table == bytes_of_an_iteration(graph, plan)


def test_random_loops_and_plans_have_everything() -> None:
    """Otherwise the tests above might have looked at nothing."""
    made = [make(seed, lags=True, shards=True) for seed in range(60)]
    fragments = [fragment for _, plan in made for fragment in plan.fragments.values()]
    assert {fragment.replicas for fragment in fragments} == {1, 2, 4}
    assert {fragment.shards for fragment in fragments} == {1, 2}
    assert len(SHARDED) >= 8
    combined = {how for graph, _ in made for var in graph.variables.values() for how in var.combine}
    assert combined == {None, "mean", "sum", "max", "min", "any", "all"}
    lagging = {link.strip("0123456789") for _, plan in made for link, each in plan.links.items() if each.lag}
    assert lagging >= {"view of slow", "late", "drawn"}
    through = [w for graph, plan in made for p in project(graph, plan).values() for w, _ in wires(p.body) if w.through]
    assert len(through) > 5
    assert {period(graph) for graph, _ in made} == {1, 2, 3}
    assert sum(isinstance(item, Node) for graph, _ in made for item in graph.nodes()) > 300
