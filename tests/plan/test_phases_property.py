"""Random loops of which parts run in every n-th iteration, cut at random, compute what the sequential loop computes."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from motet.flow.graph import WHOLE, Graph, Item, Loop, Node
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.plan.test_projection_property import ITERATIONS, Maker, cut, sequential, states


class PhaseMaker(Maker):
    """Directly in the iteration there are phases too, whose values stay inside."""

    def body(self, depth: int, visible: list[str]) -> tuple[tuple[Item, ...], list[str]]:
        items, made = super().body(depth, visible)
        if depth < 2:
            return items, made
        mixed: list[Item] = []
        for item in items:
            if self.chance.random() < 0.6:
                inside, _ = super().body(1, visible)
                self.loops += 1
                mixed.append(Loop(f"loop{self.loops}", 1, inside, (), every=self.chance.randint(2, 3)))
            mixed.append(item)
        return tuple(mixed), made

    def graph(self) -> Graph:
        """Without a prefill, which has no phases."""
        graph = super().graph()
        body = tuple(item for item in graph.root.body if item.name != "prefill")
        return replace(graph, root=replace(graph.root, body=body))


def unrolled(graph: Graph) -> dict[str, int]:
    """The sequential run of a graph whose iterations are written out, with phases where they are due."""
    rounds = []
    for number in range(ITERATIONS):
        body: list[Any] = []
        for item in graph.iteration.body:
            if isinstance(item, Loop) and item.every > 1:
                body += [each for each in item.body if (number + 1) % item.every == 0]
            else:
                body.append(item)
        rounds.append([_numbered(item, number, item in graph.iteration.body) for item in body])
    first = [item for item in graph.root.body if isinstance(item, Node)]
    root = Loop("run", 1, (*first, *(item for each in rounds for item in each)))
    return sequential(replace(graph, root=root))


def _numbered(item: Item, number: int, outside: bool) -> Item:
    """An item that is told the iteration it is in; one inside a phase is told the phase's only round, 0."""
    if isinstance(item, Loop):
        return item
    code, told = item.code[WHOLE], number if outside else 0

    def tell(key: Any, part: Any, index: Any, *values: Any) -> Any:
        return code(key, part, told, *values)

    return replace(item, code={WHOLE: tell})


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_random_cuts_of_random_phases_equal_the_sequential_run(seed: int, count: int) -> None:
    chance = random.Random(seed)
    graph = PhaseMaker(chance).graph()
    plan = cut(graph, chance, count)
    assert states(graph, plan, seed=seed) == unrolled(graph)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_phases_run_the_same_in_threads_under_random_delays(seed: int, count: int) -> None:
    chance = random.Random(seed)
    graph = PhaseMaker(chance).graph()
    plan = cut(graph, chance, count)
    wait = random.Random(seed + 1)
    assert states(graph, plan, "threads", delay=lambda name: time.sleep(wait.random() * 0.002)) == unrolled(graph)


def test_random_phases_are_cut_too() -> None:
    """The property would say nothing if no cut went through a phase."""

    def cut_phases(seed: int) -> tuple[Graph, Plan, bool]:
        chance = random.Random(seed)
        graph = PhaseMaker(chance).graph()
        plan = cut(graph, chance, 3)
        rows = traffic(graph, plan, project(graph, plan), 1), traffic(graph, plan, project(graph, plan), 6)
        return graph, plan, [row.messages * 6 for row in rows[0]] != [row.messages for row in rows[1]]

    assert sum(cut_phases(seed)[-1] for seed in range(60)) > 20
