"""The loop as a value: nodes, loops, typed variables and the edges between them.

A graph is a tree. `Loop(run)` holds the nodes that make the first state, then the loop `iteration`, which holds
what the algorithm's author wrote. Values flow through named variables; the leaves of a variable that have an
environment axis can be cut along it. After tracing, the graph is the program: every node carries its jaxpr, one
for each way of cutting the environment axis (`Cut`) that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.combine import Combine
from motet.flow.host import HostCall
from motet.flow.replay_call import ReplayCall

Kind = Literal["init", "act", "env", "call", "remember", "sample", "reprioritize", "apply"]
How = Literal["stack", "sum", "mean"]
Rate = Literal["step", "update", "iteration", "run"]


REDUCE: dict[str, Callable[[jax.Array], jax.Array]] = {
    "stack": lambda rows: rows,
    "sum": lambda rows: jnp.sum(rows, 0, dtype=jnp.int32 if rows.dtype == bool else rows.dtype),
    "mean": lambda rows: jnp.mean(rows, 0),
}
"""What becomes of the rounds of a loop's output, stacked as rows."""


class Cut(NamedTuple):
    """Into how many pieces the environment axis is cut, and how many of them share one SPMD program."""

    parts: int = 1
    shards: int = 1


WHOLE = Cut()


@dataclass(frozen=True)
class Var:
    """A typed value. Leaves are listed in the order of `treedef`."""

    name: str
    treedef: Any
    avals: tuple[jax.ShapeDtypeStruct, ...]
    """Shapes with all environments in one piece."""
    axes: tuple[int | None, ...]
    """For each leaf, which dimension is cut with the environments; None: every piece has the whole leaf."""
    combine: tuple[Combine | None, ...] = ()
    """For each leaf, how the pieces of a result over the batch become that of the whole batch; None: the leaf is cut
    with the environments, or is the same in every piece."""
    blocks: tuple[int, ...] = ()
    """For each leaf that is cut, into how many blocks its rows fall, of each of which every piece has its share: 1 if
    a piece's rows follow each other, more in a minibatch."""
    loop: str | None = None
    """The loop that made it and whose rounds it does not outlive; None for the run's own state."""
    late: bool = False
    """True: its readers can do with the value of an earlier round, in loops inside the iteration too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "combine", self.combine or (None,) * len(self.avals))
        object.__setattr__(self, "blocks", self.blocks or (1,) * len(self.avals))

    @property
    def link(self) -> str:
        """The name under which this variable travels: `rollout` for `rollout.reward`."""
        return self.name.split(".")[0]

    def local(self, parts: int | Fraction) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The shapes of one piece of `parts`."""
        return tuple(
            aval if axis is None else resize(aval, axis, int(aval.shape[axis] / Fraction(parts)))
            for aval, axis in zip(self.avals, self.axes, strict=True)
        )

    def nbytes(self, parts: int = 1) -> int:
        return sum(int(np.prod(aval.shape)) * aval.dtype.itemsize for aval in self.local(parts))

    def unpack(self, leaves: tuple[Any, ...]) -> Any:
        return jax.tree.unflatten(self.treedef, leaves)

    @property
    def divisible(self) -> bool:
        """Whether any leaf is cut with the environments."""
        return any(axis is not None for axis in self.axes)

    @property
    def partial(self) -> bool:
        """Whether any leaf is one piece's part of a result over the batch."""
        return any(self.combine)

    def paths(self) -> list[str]:
        """The name of each leaf: `gradient.1['loss']`."""
        paths = jax.tree_util.tree_flatten_with_path(self.unpack(self.avals))[0]
        return [f"{self.name}{jax.tree_util.keystr(path)}" for path, _ in paths]


@dataclass(frozen=True)
class Node:
    """One step of the loop. `code[cut]` maps (key, part, index, *leaves read) to the leaves written."""

    name: str
    kind: Kind
    site: str
    """The node whose fragment this one joins: itself, unless it makes the first state."""
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    code: Mapping[Cut, Any] = field(default_factory=dict, compare=False, repr=False)
    statistic: bool = False
    """True: it computes a statistic over the whole batch."""
    draws: bool = False
    """True: it draws random numbers for a batch as a whole, so that pieces of the batch would draw others."""
    whole: tuple[str, ...] = ()
    """Results that it can only give for the whole batch in one piece, each with the reason; empty: it may be cut."""
    host: HostCall | None = field(default=None, compare=False, repr=False)
    """What it does outside of XLA, instead of `code`."""
    replay: ReplayCall | None = field(default=None, compare=False, repr=False)
    """What it does to a replay that a plan puts outside of XLA; elsewhere `code` does it."""


@dataclass(frozen=True)
class Output:
    """A value that outlives its loop: each round's `inner`, stacked, summed or averaged."""

    name: str
    inner: str
    how: How


@dataclass(frozen=True)
class Loop:
    """`count` rounds of `body`."""

    name: str
    count: int
    body: tuple[Item, ...]
    outputs: tuple[Output, ...] = ()
    rate: Rate = "update"
    first: int = 0
    """The number of the first round. The prefill counts from elsewhere, and so draws other random numbers."""
    every: int = 1
    """It runs in iterations n - 1, 2n - 1, ... alone; then it has one round. In all others it leaves every state as it
    is, and its outputs are zero."""


Item = Node | Loop


@dataclass(frozen=True)
class View:
    """A part of a state variable that readers elsewhere need, such as the policy of the learner state."""

    name: str
    of: str
    code: Any = field(compare=False, repr=False)


@dataclass(frozen=True)
class Report:
    """A variable of the iteration whose scalars are shown to people. `sum` adds over environments."""

    var: str
    how: Literal["sum", "mean"]
    node: str
    names: tuple[str, ...] = ()
    """Under which each leaf is shown."""
    every: int = 1
    """It means something in iterations n - 1, 2n - 1, ... alone."""


@dataclass(frozen=True)
class Edge:
    """A value that goes from one node to another."""

    producer: str
    consumer: str
    var: str
    rate: Rate
    carried: bool
    """True: it is read in the round after the one that wrote it."""


@dataclass(frozen=True)
class Roles:
    """Which variables are what, for whoever runs a graph without knowing its names; empty: none is."""

    learner: str = ""
    """The state that learning changes."""
    replay: str = ""
    """What is remembered."""


@dataclass(frozen=True)
class Graph:
    """One algorithm on one environment."""

    algorithm: str
    environment: str
    num_envs: int
    iterations: int
    """How many iterations the run will have."""
    steps_per_iteration: int
    prefill_steps: int
    max_lag: int | None
    variables: Mapping[str, Var]
    views: Mapping[str, View]
    root: Loop
    reports: tuple[Report, ...]
    divisors: tuple[tuple[str, int], ...]
    """What limits the pieces: each names a node and the count that the number of pieces must divide."""
    cuts: tuple[Cut, ...] = (WHOLE,)
    roles: Roles = Roles()

    @property
    def iteration(self) -> Loop:
        last = self.root.body[-1]
        assert isinstance(last, Loop)
        return last

    def steps_after(self, iterations: int) -> int:
        """Environment steps that so many iterations have taken, those before the first one included."""
        return self.prefill_steps + iterations * self.steps_per_iteration

    def nodes(self) -> list[Node]:
        return [item for item, _ in walk(self.root) if isinstance(item, Node)]

    def sites(self) -> dict[str, Node]:
        """The nodes that a plan places, by name; all others follow one of these."""
        return {node.name: node for node in self.nodes() if node.site == node.name}

    def edges(self) -> list[Edge]:
        return find_edges(self.root)


def uses_key(code: Any) -> bool:
    """Whether a node's jaxpr looks at its key."""
    key = code.jaxpr.invars[0]
    return any(key is var for eqn in code.jaxpr.eqns for var in eqn.invars) or key in code.jaxpr.outvars


def resize(aval: jax.ShapeDtypeStruct, axis: int, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((*aval.shape[:axis], size, *aval.shape[axis + 1 :]), aval.dtype)


def walk(item: Item, path: tuple[Loop, ...] = ()) -> Iterator[tuple[Item, tuple[Loop, ...]]]:
    """Every node and loop below `item`, in order, with the loops around it."""
    yield item, path
    if isinstance(item, Loop):
        for child in item.body:
            yield from walk(child, (*path, item))


def written(item: Item) -> frozenset[str]:
    """Every variable that `item` writes, a loop's outputs included."""
    if isinstance(item, Node):
        return frozenset(item.writes)
    inside = frozenset().union(*(written(child) for child in item.body))
    return inside | {output.name for output in item.outputs}


def exposed(items: tuple[Item, ...]) -> frozenset[str]:
    """The variables that `items`, run in order, read before any of them has written them.

    What a loop writes that may not run, as it does not in every iteration, is not taken for written.
    """
    reads: set[str] = set()
    done: set[str] = set()
    for item in items:
        reads |= (frozenset(item.reads) if isinstance(item, Node) else exposed(item.body)) - done
        if isinstance(item, Node) or item.every == 1:
            done |= written(item)
    return frozenset(reads)


def find_edges(root: Loop) -> list[Edge]:
    """Match every read with the write it sees: the last one before it, or else the last one of the round before. Behind
    a loop that may not run there are two."""
    paths = {item.name: path for item, path in walk(root) if isinstance(item, Node)}
    order = {name: position for position, name in enumerate(paths)}
    edges: dict[Edge, None] = {}

    def rate(producer: str, consumer: str) -> Rate:
        """How often a value goes along: the rate of the innermost loop around both ends."""
        common = [a for a, b in zip(paths[producer], paths[consumer], strict=False) if a is b]
        return common[-1].rate

    def visit(loop: Loop, last: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for _ in range(2):  # the second round sees what the first one carries over
            for item in loop.body:
                if isinstance(item, Loop):
                    inner = visit(item, dict(last))
                    inner |= {out.name: inner[out.inner] for out in item.outputs}
                    if item.every > 1:
                        inner = {var: tuple(dict.fromkeys((*last.get(var, ()), *inner[var]))) for var in inner}
                    last = {**last, **inner}
                    continue
                for var in (var for var in item.reads if var in last):
                    for producer in last[var]:
                        carried = order[producer] >= order[item.name]
                        edges[Edge(producer, item.name, var, rate(producer, item.name), carried)] = None
                last = {**last, **dict.fromkeys(item.writes, (item.name,))}
        return last

    visit(root, {})
    return list(edges)
