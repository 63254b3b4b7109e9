"""Random loop nests over numbers: states, values of every kind, views, late variables, loops inside loops.

A node's code is plain arithmetic on whole numbers below a prime, so it is exact under every cut, costs nothing, and
hides no mistake: whatever a node reads changes what it writes. It runs on NumPy's arrays, and inside compiled programs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.graph import WHOLE, Cut, Graph, Item, Loop, Node, Output, Var, View

ENVS, ITERATIONS, MODULUS = 8, 4, 1009
CUTS = tuple(Cut(replicas * shards, shards) for replicas in (1, 2, 4) for shards in (1, 2, 4) if replicas * shards <= 8)
Sort = Literal["one", "rows", "mean", "sum", "max", "min", "any", "all"]
"""One number for all environments, a number for each of them, or a result over them, of which each piece has a part."""
RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda xp, rows: xp.mean((rows % 64).astype(np.float32)).astype(np.float32),
    "sum": lambda xp, rows: (rows % 64).sum().astype(np.int32),
    "max": lambda xp, rows: rows.max(),
    "min": lambda xp, rows: rows.min(),
    "any": lambda xp, rows: (rows % 7 == 0).any(),
    "all": lambda xp, rows: (rows % 7 > 0).all(),
}
DTYPES = {"mean": np.float32, "any": np.bool_, "all": np.bool_}


def variable(name: str, sort: Sort, *, loop: str | None = None, late: bool = False) -> Var:
    aval = jax.ShapeDtypeStruct((ENVS,) if sort == "rows" else (), DTYPES.get(sort, np.int32))
    combine: Any = sort if sort in RESULTS else None
    return Var(name, jax.tree.structure(0), (aval,), (0 if sort == "rows" else None,), (combine,), (1,), loop, late)


def sort_of(var: Var) -> Sort:
    return "rows" if var.axes[0] is not None else var.combine[0] or "one"


def output(var: Var, name: str, how: str, count: int, loop: str) -> Var:
    """What `count` rounds of `var` become, in the loop around theirs."""
    (aval,), (axis,) = var.avals, var.axes
    shape = (count, *aval.shape) if how == "stack" else aval.shape
    moved = None if axis is None else axis + (how == "stack")
    return Var(name, var.treedef, (jax.ShapeDtypeStruct(shape, aval.dtype),), (moved,), var.combine, (1,), loop)


def view(state: Any) -> Any:
    """What others see of a state that has a view."""
    return (state * 3 + 1) % MODULUS


@dataclass(frozen=True)
class Code:
    """What a node computes: every number it reads, its round and the rows it is for go into every number it writes."""

    number: int
    reads: tuple[Var, ...]
    writes: tuple[Var, ...]

    def __call__(self, rows: int, key: Any, part: Any, index: Any, *values: Any) -> list[Any]:
        traced = any(isinstance(value, jax.core.Tracer) for value in (part, index, *values))
        xp: Any = jnp if traced else np
        total = xp.asarray(self.number * 31 + xp.asarray(index) % 101 * 7, np.int32)
        each = (xp.asarray(part, np.int32) * rows + xp.arange(rows, dtype=np.int32)) * 11
        for place, (var, value) in enumerate(zip(self.reads, map(xp.asarray, values), strict=True)):
            if sort_of(var) == "rows":
                mine = value if value.ndim == 1 else (value * np.arange(1, len(value) + 1)[:, None]).sum(0)
                each = (each * 37 + mine * (place + 3)) % MODULUS
            else:
                # Means are of whole numbers, over 8 environments and up to 4 rounds: 64 of them are whole again.
                whole = (value * 64 if sort_of(var) == "mean" else value).astype(np.int32).ravel()
                total = (total * 37 + (whole * np.arange(1, whole.size + 1)).sum() * (place + 3)) % MODULUS
        return [self.result(xp, var, place, total, (each + total) % MODULUS) for place, var in enumerate(self.writes)]

    @staticmethod
    def result(xp: Any, var: Var, place: int, total: Any, each: Any) -> Any:
        if sort_of(var) == "one":
            return (total * (place + 5)).astype(np.int32) % MODULUS
        rows = ((each * (place + 5) + place) % MODULUS).astype(np.int32)
        return rows if sort_of(var) == "rows" else RESULTS[sort_of(var)](xp, rows)


class Maker:
    """Makes one random graph."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.variables: dict[str, Var] = {}
        self.views: dict[str, View] = {}
        self.nodes = self.loops = 0
        self.around = ["iteration"]
        self.states = [self.declare("state", self.some("one", "rows")) for _ in range(chance.randint(1, 4))]
        self.slow = [self.with_view() for _ in range(chance.randint(0, 2))]
        self.echoes = [self.declare("late", self.some("one", "rows"), late=True) for _ in range(chance.randint(0, 1))]

    # Variables and nodes.

    def some(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def declare(self, what: str, sort: Sort, **options: Any) -> str:
        name = f"{what}{len(self.variables)}"
        self.variables[name] = variable(name, sort, **options)
        return name

    def with_view(self) -> str:
        """A state that others see a view of, and that changes once, at the end of an iteration."""
        name = self.declare("slow", "one")
        seen = f"view of {name}"
        self.variables[seen] = variable(seen, "one")
        self.views[seen] = View(seen, name, jax.make_jaxpr(view)(self.variables[name].avals[0]))
        return name

    def node(self, reads: Sequence[str], writes: Sequence[str], kind: Any = "call") -> Node:
        self.nodes += 1
        code = Code(self.nodes, *(tuple(self.variables[name] for name in names) for names in (reads, writes)))
        of_cut = {cut: partial(code, ENVS // cut.parts) for cut in CUTS}
        seen = [name for name, each in self.views.items() if each.of in writes]
        return Node(f"node{self.nodes}", kind, f"node{self.nodes}", tuple(reads), (*writes, *seen), of_cut)

    def reading(self, names: Sequence[str], sort: str) -> list[str]:
        return [name for name in names if sort_of(self.variables[name]) == sort]

    def some_of(self, scope: Sequence[str]) -> list[str]:
        return self.chance.sample(scope, min(len(scope), self.chance.randint(1, 3)))

    def step(self, scope: Sequence[str]) -> tuple[Node, str]:
        """A node that reads some of `scope` -> it, and the value that it makes. It may change states too."""
        reads = self.some_of(scope)
        has_rows = bool(self.reading(reads, "rows"))
        of_rows = self.some("rows", "rows", self.some(*RESULTS))
        made = self.declare("value", of_rows if has_rows else self.some("one", "one", "rows"), loop=self.around[-1])
        changes = self.reading(self.states, "rows") + ([] if has_rows else self.reading(self.states, "one"))
        writes = [made, *([self.some(*changes)] if changes and self.chance.random() < 0.6 else [])]
        return self.node(reads, writes), made

    # Loops.

    def body(self, depth: int, visible: list[str]) -> tuple[tuple[Item, ...], list[str]]:
        """A random sequence of nodes and loops -> it, and the values that it made."""
        items: list[Item] = []
        made: list[str] = []
        for _ in range(self.chance.randint(1, 3)):
            if depth and self.chance.random() < 0.4:
                loop, outputs = self.loop(depth - 1, visible + made)
                items.append(loop)
                made += outputs
                continue
            step, value = self.step([*self.states, *self.views, *visible, *made])
            items.append(step)
            made.append(value)
        return tuple(items), made

    def loop(self, depth: int, visible: list[str], every: int = 1) -> tuple[Loop, list[str]]:
        self.loops += 1
        count, name = self.chance.randint(1, 4) if every == 1 else 1, f"loop{self.loops}"
        self.around.append(name)
        body, inside = self.body(depth, visible)
        self.around.pop()
        outputs = []
        for inner in inside:
            var = self.variables[inner]
            if len(var.avals[0].shape) == (var.axes[0] is not None) and self.chance.random() < 0.5:
                how = self.some("stack", *self.summaries(sort_of(var), count))
                out = f"out{len(self.variables)}"
                self.variables[out] = output(var, out, how, count, self.around[-1])
                outputs.append(Output(out, inner, how))
        return Loop(name, count, body, tuple(outputs), every=every), [out.name for out in outputs]

    @staticmethod
    def summaries(sort: Sort, count: int) -> list[str]:
        """What else may become of `count` rounds: what does not matter whether pieces are joined before or after."""
        return {"one": ["sum"], "rows": ["sum"], "sum": ["sum"], "mean": ["mean"] if count != 3 else []}.get(sort, [])

    def echo(self, late: str, visible: list[str]) -> Loop:
        """A loop in which one node draws and another answers, and the answer may come late."""
        sort = sort_of(self.variables[late])
        ring, drawn = self.declare("ring", sort), self.declare("drawn", sort, loop=f"echo of {late}")
        self.states.append(ring)
        seen = self.reading(visible, "one")[:1]
        draw = self.node([late, ring, *seen], [drawn, ring])
        answer = self.node([drawn, *seen], [late])
        return Loop(f"echo of {late}", self.chance.randint(1, 3), (draw, answer))

    def graph(self) -> Graph:
        body, made = self.body(2, [])
        seldom = []
        if self.chance.random() < 0.5:  # a loop that does not run in every iteration
            loop, outputs = self.loop(1, made, every=self.chance.randint(2, 3))
            seldom.append(loop)
            made += outputs
        ends = [self.node([name, *self.some_of([*self.reading(made, "one"), name])], [name]) for name in self.slow]
        echoes = [self.echo(late, made) for late in self.echoes]
        iteration = [*body, *seldom, *echoes]
        if self.chance.random() < 0.5:  # what an echo is told, no node after it may have made
            iteration = [
                *body[: len(body) // 2],
                *(self.echo_alone(each) for each in echoes),
                *body[len(body) // 2 :],
                *seldom,
            ]
        first = [self.node([], [state], "init") for state in [*self.states, *self.slow, *self.echoes]]
        prefill = [Loop("prefill", 2, body, (), "run", first=1000)] if self.chance.random() < 0.3 else []
        root = Loop("run", 1, (*first, *prefill, Loop("iteration", 1, (*iteration, *ends), (), "iteration")))
        sizes = (("the environments", ENVS),)
        return Graph(
            "random", "random", ENVS, ITERATIONS, 1, 0, None, self.variables, self.views, root, (), sizes, CUTS
        )

    def echo_alone(self, loop: Loop) -> Loop:
        """The same, reading nothing that was made in the iteration."""
        draw, answer = loop.body
        assert isinstance(draw, Node) and isinstance(answer, Node)
        again = (self.node(draw.reads[:2], draw.writes), self.node(answer.reads[:1], answer.writes))
        return Loop(loop.name, loop.count, again)


def states(graph: Graph) -> list[str]:
    """What outlives an iteration."""
    first = [item for item in graph.root.body if isinstance(item, Node)]
    return [var for node in first for var in node.writes if var not in graph.views]


def function(graph: Graph, node: Node) -> Callable[..., list[Any]]:
    """A node's code for all environments in one piece."""
    return node.code[WHOLE]
