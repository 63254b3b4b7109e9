"""How a loop becomes a graph: open loops, declared variables, and a jaxpr for every cut of every node.

A node's function takes `Here`, which says for how many environments it runs and with which key, and then what the
node reads. Which dimensions of its results are cut with the environments is found by comparing two numbers of them:
those that differ. A node that asks for nothing that depends on the cut is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm
from motet.flow.batch import SHARDS, scope
from motet.flow.graph import REDUCE, WHOLE, Cut, How, Item, Kind, Loop, Node, Output, Rate, Var, View, resize, uses_key
from motet.flow.host import HostCall
from motet.flow.replay_call import ReplayCall
from motet.flow.values import Value, difference, show, strict, strict_aval


@dataclass
class Here:
    """Where and when a node runs."""

    environments: int
    key: jax.Array
    part: jax.Array
    """Which piece this is."""
    index: jax.Array
    """The round of the innermost loop."""
    counted: bool = False
    """Whether the node has asked how many environments there are."""

    @property
    def batch(self) -> int:
        """Environments in this piece."""
        self.counted = True
        return self.environments

    def env_keys(self) -> jax.Array:
        """One key for each environment, the same whatever piece it is in."""
        return self.row_keys(self.batch)

    def row_keys(self, count: int) -> jax.Array:
        """One key for each of the `count` rows that a batch has in this piece, the same whatever piece a row is in."""
        rows = self.part * count + jnp.arange(count)
        return jax.vmap(lambda row: jax.random.fold_in(self.key, row))(rows)


ADDRESS = (
    jax.eval_shape(lambda: jax.random.key(0)),
    jax.ShapeDtypeStruct((), jnp.int32),
    jax.ShapeDtypeStruct((), jnp.int32),
)
"""The types of a node's first three arguments: its key, which piece it is, and the round of the loop around it."""

Function = Callable[..., tuple[Any, ...]]
"""(here, *values read) -> the values written, in the order of the node's writes."""


class Code(NamedTuple):
    """A node's function, traced for one cut."""

    jaxpr: Any
    types: tuple[Any, ...]
    counts: bool
    """Whether it depends on the number of environments."""
    statistic: bool
    """Whether it takes a statistic of the whole batch."""


@dataclass
class OpenLoop:
    """A loop that is being recorded."""

    name: str
    count: int
    rate: Rate
    items: list[Item] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    reported: list[tuple[str, str]] = field(default_factory=list)  # (variable, node)


class Recorder:
    """A graph in the making."""

    def __init__(self, title: str, num_envs: int, cuts: Iterable[Cut]):
        self.title, self.num_envs = title, num_envs
        self.cuts = tuple(dict.fromkeys((WHOLE, *cuts)))
        self.variables: dict[str, Var] = {}
        self.views: dict[str, View] = {}
        self.init: list[Node] = []
        self.stack = [OpenLoop("iteration", 1, "iteration")]
        self.divisors: list[tuple[str, int]] = [("the environments", num_envs)]
        self.names: set[str] = set()

    def name(self, wanted: str) -> str:
        """`wanted`, or with a number behind it if that is taken."""
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}_{count}"
        self.names.add(name)
        return name

    def shape(self, name: str) -> Any:
        """The types of a variable, in its own structure."""
        var = self.variables[name]
        return var.unpack(var.avals)

    @contextmanager
    def loop(self, name: str, count: int, rate: Rate) -> Iterator[OpenLoop]:
        """Record what follows as `count` rounds of a loop."""
        if count < 1:
            raise BadAlgorithm(f"The loop {name!r} has {count} rounds; it needs at least 1.")
        self.stack.append(OpenLoop(name, count, rate))
        yield self.stack[-1]
        done = self.stack.pop()
        for var, node in done.reported:
            # A metric climbs out of its loop as a mean; each loop on the way adds its name.
            self.stack[-1].reported.append((self.output(done, f"{var}/{done.name}", var, "mean").name, node))
        self.stack[-1].items.append(Loop(done.name, done.count, tuple(done.items), tuple(done.outputs), rate))

    def output(self, loop: OpenLoop, name: str, inner: str, how: How = "stack") -> Value:
        """Let every round's `inner` outlive `loop`."""
        var = self.variables[inner]
        rows = (jax.ShapeDtypeStruct((loop.count, *aval.shape), aval.dtype) for aval in var.avals)
        avals = tuple(strict_aval(jax.eval_shape(REDUCE[how], each)) for each in rows)
        shift = 1 if how == "stack" else 0
        axes = tuple(None if axis is None else axis + shift for axis in var.axes)
        outer = self.stack[self.stack.index(loop) - 1] if loop in self.stack else self.stack[-1]
        self.variables[name] = Var(name, var.treedef, avals, axes, var.mean, outer.name)
        loop.outputs.append(Output(name, inner, how))
        return Value(name)

    def start(
        self,
        name: str,
        run: Function,
        writes: Sequence[str],
        site: str,
        host: HostCall | None = None,
        replay: ReplayCall | None = None,
    ) -> None:
        """Record a node that makes the first value of a state, ahead of all iterations."""
        self.init.append(replace(self._make(f"init/{name}", "init", run, (), writes, site, host), replay=replay))

    def node(
        self,
        name: str,
        kind: Kind,
        run: Function,
        reads: Sequence[str],
        writes: Sequence[str] | Callable[[int], Sequence[str]],
        *,
        site: str | None = None,
        host: HostCall | None = None,
        replay: ReplayCall | None = None,
        draws: bool | None = None,
    ) -> Node:
        """Record a node of the innermost open loop. Of a host's node, `run` only tells the types.

        `writes` are names, or a function that names as many results as there turn out to be. `draws` says whether
        pieces of its batch would draw other random numbers; None: if it uses a key for a whole batch.
        """
        self.names.add(name)
        node = self._make(name, kind, run, tuple(reads), writes, site or name, host)
        node = replace(node, replay=replay, draws=node.draws if draws is None else draws)
        self.stack[-1].items.append(node)
        return node

    def rows(self, reads: Sequence[str]) -> Callable[[Sequence[Any]], int] | None:
        """How to count the rows of a batch on the values of `reads`: on the first leaf that has the environments on
        its first dimension. None: there is no such leaf."""
        for place, var in enumerate(self.variables[name] for name in reads):
            if 0 in var.axes:
                leaf = var.axes.index(0)
                return lambda read: jax.tree.leaves(read[place])[leaf].shape[0]
        return None

    def view(self, name: str, of: str, method: Callable[[Any], Any]) -> None:
        """Let a part of a state travel by itself."""
        state = self.variables[of]
        leaves, treedef = jax.tree.flatten(jax.tree.map(strict_aval, jax.eval_shape(method, self.shape(of))))
        code = jax.make_jaxpr(lambda *flat: jax.tree.leaves(method(state.unpack(flat))))(*state.avals)
        self.variables[name] = Var(name, treedef, tuple(leaves), (None,) * len(leaves))
        self.views[name] = View(name, of, code)

    def sequence_axes(self, handle: str) -> tuple[int, ...]:
        """Where the environments are in each leaf: behind the time, or in front where there is no time."""
        var = self.variables[handle]
        for axis in var.axes:
            if axis not in (0, 1):
                raise BadAlgorithm(
                    f"{handle!r} must hold [T, B, ...] or [B, ...] values to be cut into sequences; it is "
                    f"{show(self.shape(handle))}, with the environments on dimension {axis}."
                )
        return tuple(axis for axis in var.axes if axis is not None)

    def batch_shape(self, handles: Sequence[str]) -> tuple[int, int]:
        """The T and B that all of `handles` share."""
        shapes: dict[tuple[int, int], str] = {}
        for handle in handles:
            var = self.variables[handle]
            for aval, axis in zip(var.avals, var.axes, strict=True):
                if axis != 1:
                    raise BadAlgorithm(
                        f"{handle!r} must hold [T, B, ...] values to be cut into minibatches or remembered; it is "
                        f"{show(self.shape(handle))}, with the environments on dimension {axis}."
                    )
                time, envs, *_ = aval.shape
                shapes.setdefault((time, envs), handle)
        if len(shapes) != 1:
            found = ", ".join(f"{handle} has {shape}" for shape, handle in shapes.items())
            raise BadAlgorithm(f"Values of one batch must share T and B; {found}.")
        return next(iter(shapes))

    def _make(
        self,
        name: str,
        kind: Kind,
        run: Function,
        reads: tuple[str, ...],
        writes: Sequence[str] | Callable[[int], Sequence[str]],
        site: str,
        host: HostCall | None = None,
    ) -> Node:
        self._check_scope(name, reads)
        code = self._code(run, reads)
        whole = code[WHOLE]
        writes = writes(len(whole.types)) if callable(writes) else writes
        other = self._otherwise(run, reads, code)
        varies = kind == "call" and any(self.variables[var].divisible for var in reads)
        loop = None if kind == "init" else self.stack[-1].name
        for var, tree, resized in zip(writes, whole.types, other, strict=True):
            self._declare(name, var, tree, resized, varies, loop)
        draws = varies and uses_key(whole.jaxpr)
        jaxprs = {} if host else {cut: each.jaxpr for cut, each in code.items()}
        return Node(name, kind, site, reads, tuple(writes), jaxprs, whole.statistic, draws, host)

    def _code(self, run: Function, reads: tuple[str, ...]) -> dict[Cut, Code]:
        """`run` for every cut. Cuts that it cannot tell apart have one trace together."""
        code = {WHOLE: self._jaxpr(run, reads, WHOLE)}
        whole = code[WHOLE]
        for cut in self.cuts[1:]:
            if any(count % cut.parts for _, count in self.divisors):
                continue
            seen = Cut(cut.parts if whole.counts else 1, cut.shards if whole.statistic else 1)
            code[cut] = code.get(seen) or self._jaxpr(run, reads, cut)
        return code

    def _jaxpr(self, run: Function, reads: tuple[str, ...], cut: Cut) -> Code:
        axis_env = [(SHARDS, cut.shards)] if cut.shards > 1 else None
        avals = [aval for var in reads for aval in self.variables[var].local(cut.parts)]
        flat, seen = self._flat(run, reads, self.num_envs // cut.parts)
        with scope(sharded=cut.shards > 1) as around:
            jaxpr = jax.make_jaxpr(flat, axis_env=axis_env)(*ADDRESS, *avals)
        types, counted = seen[-1]
        counts = counted or any(self.variables[var].divisible for var in reads)
        return Code(jaxpr, types, counts, around.used)

    def _otherwise(self, run: Function, reads: tuple[str, ...], code: dict[Cut, Code]) -> tuple[Any, ...]:
        """The types that `run` returns with another number of environments: a cut's, or with twice as many."""
        if not code[WHOLE].counts:
            return code[WHOLE].types
        for cut, each in code.items():
            if cut.parts > 1:
                return each.types
        avals = []
        for var in (self.variables[name] for name in reads):
            for aval, axis in zip(var.avals, var.axes, strict=True):
                avals.append(aval if axis is None else resize(aval, axis, aval.shape[axis] * 2))
        flat, seen = self._flat(run, reads, self.num_envs * 2)
        jax.eval_shape(flat, *ADDRESS, *avals)
        return seen[-1][0]

    def _flat(self, run: Function, reads: tuple[str, ...], batch: int) -> tuple[Callable[..., Any], list[Any]]:
        """`run` on flat leaves, and a list that gets, whenever it is traced, the types it returns and whether it asked
        for the number of environments."""
        seen: list[Any] = []

        def flat(key: jax.Array, part: jax.Array, index: jax.Array, *leaves: jax.Array) -> list[jax.Array]:
            trees, rest = [], leaves
            for var in (self.variables[name] for name in reads):
                mine, rest = rest[: len(var.avals)], rest[len(var.avals) :]
                trees.append(var.unpack(mine))
            here = Here(batch, key, part, index)
            result = run(here, *trees)
            seen.append((jax.tree.map(strict_aval, result), here.counted))
            return [strict(leaf) for leaf in jax.tree.leaves(result)]

        return flat, seen

    def _declare(self, node: str, name: str, tree: Any, resized: Any, varies: bool, loop: str | None) -> None:
        """Note a variable's type; a state that exists already must keep its own."""
        leaves, treedef = jax.tree.flatten(tree)
        axes = tuple(self._axis(node, a, b) for a, b in zip(leaves, jax.tree.leaves(resized), strict=True))
        var = Var(name, treedef, tuple(leaves), axes, varies and None in axes, loop)
        old = self.variables.setdefault(name, var)
        if (old.treedef, old.avals) != (var.treedef, var.avals):
            raise BadAlgorithm(
                f"{self.title}.{node} must return {name} as it came: expected {show(self.shape(name))}, "
                f"got {show(tree)}. {difference(self.shape(name), tree)}"
            )

    def _axis(self, node: str, whole: Any, resized: Any) -> int | None:
        """The dimension that grows with the environments."""
        axes = [axis for axis, (a, b) in enumerate(zip(whole.shape, resized.shape, strict=True)) if a != b]
        if len(axes) > 1:
            raise BadAlgorithm(
                f"{self.title}.{node} returns {show(whole)}, where {len(axes)} dimensions grow with the environments; "
                "only one may."
            )
        return axes[0] if axes else None

    def _check_scope(self, node: str, reads: tuple[str, ...]) -> None:
        open_loops = {loop.name for loop in self.stack}
        for name in reads:
            if name not in self.variables:
                raise BadAlgorithm(f"{self.title}.{node} reads {name!r}, which nothing has written.")
            loop = self.variables[name].loop
            if loop is not None and loop not in open_loops:
                raise BadAlgorithm(
                    f"{self.title}.{node} uses {name!r} outside the loop {loop!r} that made it. Move the call into "
                    "that `with` block."
                )
