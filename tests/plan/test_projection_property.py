"""Random loop nests, cut at random and run under random schedules, compute what the sequential loop computes.

The nodes here are plain functions of numbers, so thousands of rounds cost nothing: what is tested is the
projection, the channels and the interpreter, not XLA.
"""

from __future__ import annotations

import random
import time
from typing import Any

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from motet.engine.assemble import Limits, Settings
from motet.engine.run import run
from motet.flow.graph import WHOLE, Cut, Graph, Item, Loop, Node, Output, Var
from motet.plan.plan import Fragment, Link, Plan
from motet.plan.project import project, wires

MODULUS = 1_000_003
ITERATIONS = 4
NUMBER = jax.ShapeDtypeStruct((), np.int64)


class Maker:
    """Makes a random graph: a few state variables, nodes that mix them, loops around those."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.nodes = 0
        self.loops = 0
        self.variables: dict[str, Var] = {}
        self.states = [self.variable(f"state{i}") for i in range(chance.randint(1, 4))]

    def variable(self, name: str, shape: tuple[int, ...] = ()) -> str:
        self.variables[name] = Var(name, jax.tree.structure(0), (jax.ShapeDtypeStruct(shape, np.int64),), (None,))
        return name

    def node(self, reads: list[str], writes: list[str], site: str | None = None, kind: Any = "call") -> Node:
        self.nodes += 1
        name, number = f"node{self.nodes}", self.nodes

        def code(key: Any, part: Any, index: Any, *values: Any) -> list[Any]:
            total = number * 7919 + int(index) * 31
            for position, value in enumerate(values):
                total = (total * 37 + int(np.sum(value)) * (position + 3)) % MODULUS
            return [np.int64((total * (place + 5)) % MODULUS) for place in range(len(writes))]

        return Node(name, kind, site or name, tuple(reads), tuple(writes), {WHOLE: code})

    def body(self, depth: int, visible: list[str]) -> tuple[tuple[Item, ...], list[str]]:
        """A random sequence of nodes and loops -> it, and the values that it made."""
        items: list[Item] = []
        made: list[str] = []
        for _ in range(self.chance.randint(1, 3)):
            scope = self.states + visible + made
            if depth and self.chance.random() < 0.4:
                items.append(self.loop(depth - 1, visible + made, made))
                continue
            reads = self.chance.sample(scope, min(len(scope), self.chance.randint(1, 3)))
            writes = [self.variable(f"value{len(self.variables)}")]
            if self.chance.random() < 0.6:
                writes.append(self.chance.choice(self.states))
            items.append(self.node(reads, writes))
            made.append(writes[0])
        return tuple(items), made

    def loop(self, depth: int, visible: list[str], made: list[str]) -> Loop:
        self.loops += 1
        count = self.chance.randint(1, 3)
        name = f"loop{self.loops}"
        body, inside = self.body(depth, visible)
        outputs = []
        for inner in inside:
            if self.variables[inner].avals[0].shape == () and self.chance.random() < 0.5:
                how = self.chance.choice(["sum", "stack"])
                out = self.variable(f"out{len(self.variables)}", (count,) if how == "stack" else ())
                outputs.append(Output(out, inner, how))
                made.append(out)
        return Loop(name, count, body, tuple(outputs))

    def graph(self) -> Graph:
        first = tuple(self.node([], [state], kind="init") for state in self.states)
        body, _ = self.body(2, [])
        prefill = Loop("prefill", 2, body, (), "run", first=1000) if self.chance.random() < 0.3 else None
        root = Loop("run", 1, (*first, *((prefill,) if prefill else ()), Loop("iteration", 1, body, (), "iteration")))
        return Graph(
            "random",
            "random",
            1,
            ITERATIONS,
            1,
            0,
            None,
            self.variables,
            {},
            root,
            (),
            (("the environments", 1),),
            (Cut(),),
        )


def cut(graph: Graph, chance: random.Random, count: int) -> Plan:
    """Put every node into a random fragment, all writers of one state into the same."""
    group: dict[str, str] = {}

    def leader(name: str) -> str:
        while group.get(name, name) != name:
            name = group[name]
        return name

    for node in graph.nodes():
        for var in node.writes:
            group[leader(node.name)] = leader(f"var {var}")
    home: dict[str, str] = {}
    fragments: dict[str, list[str]] = {}
    for node in graph.nodes():
        place = home.setdefault(leader(node.name), f"fragment{chance.randrange(count)}")
        fragments.setdefault(place, []).append(node.name)
    return Plan({name: Fragment(tuple(nodes)) for name, nodes in fragments.items()})


class Deaf:
    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...


def states(graph: Graph, plan: Plan, mode: Any = "serial", seed: int = 0, delay: Any = None) -> dict[str, int]:
    settings = Settings(seed, Limits(20), compiled=False)
    outcome = run(graph, plan, {"cpu": jax.devices()}, Deaf(), ITERATIONS, settings, mode=mode, delay=delay)
    owner = {var: home for node in graph.nodes() for var in node.writes for home in [plan.homes(graph)[node.name]]}
    return {
        name: int(outcome.variables[owner[name]][0][name][0])
        for name in graph.variables
        if name.startswith("state") and name in owner
    }


def sequential(graph: Graph) -> dict[str, int]:
    """The loop as it stands, run by a few lines that share nothing with the engine."""
    store: dict[str, Any] = {}

    def run(item: Item, index: int) -> None:
        if isinstance(item, Node):
            values = item.code[WHOLE](None, 0, index, *(store[var] for var in item.reads))
            store.update(zip(item.writes, values, strict=True))
            return
        rounds: dict[str, list[Any]] = {out.name: [] for out in item.outputs}
        count = ITERATIONS if item.name == "iteration" else item.count
        for step in range(item.first, item.first + count):
            for child in item.body:
                run(child, 0 if item.name == "run" else step)
            for out in item.outputs:
                rounds[out.name].append(store[out.inner])
        for out in item.outputs:
            store[out.name] = np.sum(rounds[out.name]) if out.how == "sum" else np.stack(rounds[out.name])

    run(graph.root, 0)
    return {name: int(store[name]) for name in store if name.startswith("state")}


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_random_cuts_of_random_loops_equal_the_sequential_run(seed: int, count: int) -> None:
    chance = random.Random(seed)
    graph = Maker(chance).graph()
    plan = cut(graph, chance, count)
    assert states(graph, plan, seed=seed) == sequential(graph)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_random_cuts_run_the_same_in_threads_under_random_delays(seed: int, count: int) -> None:
    chance = random.Random(seed)
    graph = Maker(chance).graph()
    plan = cut(graph, chance, count)
    wait = random.Random(seed + 1)
    assert states(graph, plan, "threads", delay=lambda name: time.sleep(wait.random() * 0.002)) == sequential(graph)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_every_value_is_sent_to_a_reader_that_does_not_hold_it(seed: int, count: int) -> None:
    """No message goes to its sender, none carries what its receiver computes itself, and ends match."""
    chance = random.Random(seed)
    graph = Maker(chance).graph()
    plan = cut(graph, chance, count)
    home = plan.homes(graph)
    programs = project(graph, plan)
    for program in programs.values():
        for wire, _ in wires((*program.start, *program.body)):
            assert wire.source == program.fragment != wire.target
            writers = {home[node.name] for node in graph.nodes() for var in wire.vars if var in node.writes}
            assert wire.target not in writers


@pytest.mark.parametrize("lag", [0, 1, 2, 5])
def test_a_lagging_link_delivers_exactly_the_value_of_that_many_rounds_before(lag: int) -> None:
    """`tick` counts rounds; `watch`, elsewhere, writes down what it sees at the start of each round."""
    variables = {name: Var(name, jax.tree.structure(0), (NUMBER,), (None,)) for name in ("clock", "log")}
    seen: list[int] = []

    def watch(key: Any, part: Any, index: Any, clock: Any, log: Any) -> list[Any]:
        seen.append(int(clock))
        return [log + clock]

    init = {"clock": lambda *_: [np.int64(0)], "log": lambda *_: [np.int64(0)]}
    nodes = (
        Node("watch", "call", "watch", ("clock", "log"), ("log",), {WHOLE: watch}),
        Node("tick", "call", "tick", ("clock",), ("clock",), {WHOLE: lambda k, p, i, clock: [clock + 1]}),
    )
    first = (
        Node("init/clock", "init", "tick", (), ("clock",), {WHOLE: init["clock"]}),
        Node("init/log", "init", "watch", (), ("log",), {WHOLE: init["log"]}),
    )
    root = Loop("run", 1, (*first, Loop("iteration", 1, nodes, (), "iteration")))
    graph = Graph("clock", "none", 1, 8, 1, 0, None, variables, {}, root, (), (), (Cut(),))
    plan = Plan({"a": Fragment(("watch",)), "b": Fragment(("tick",))}, {"clock": Link(lag)})
    for mode in ("serial", "threads"):
        seen.clear()
        run(graph, plan, {"cpu": jax.devices()}, Deaf(), 8, Settings(0, Limits(20), compiled=False), mode=mode)
        assert seen == [max(0, round_ - lag) for round_ in range(8)]
