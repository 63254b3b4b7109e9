"""How a loop becomes a graph: open loops, declared variables, and what is known of every node's results.

Which dimensions of a result are cut with the environments is found by comparing two numbers of them: those that
differ. How the pieces of all other results combine is found in the node's program (see reduction/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from motet.errors import BadAlgorithm
from motet.flow import results
from motet.flow.coding import ADDRESS, Coding, Function, NodeRun
from motet.flow.graph import (
    REDUCE,
    WHOLE,
    Cut,
    How,
    Item,
    Kind,
    Loop,
    Node,
    Output,
    Rate,
    Report,
    Var,
    View,
    uses_key,
    written,
)
from motet.flow.host import HostCall
from motet.flow.parts import Parts, site_of
from motet.flow.replay_call import ReplayCall
from motet.flow.values import Value, difference, show, strict_aval

__all__ = ["ADDRESS", "GraphRecorder", "NodeRun", "OpenLoop"]


@dataclass
class OpenLoop:
    """A loop that is being recorded."""

    name: str
    count: int
    rate: Rate
    every: int = 1
    items: list[Item] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    reported: list[Report] = field(default_factory=list)


class GraphRecorder:
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
        self.coding = Coding(num_envs, self.cuts, self.variables, self.divisors)
        self.parts = Parts(self)

    def value(self, name: str) -> Value:
        """A handle on a variable."""
        return self.parts.handle(name)

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
    def loop(self, name: str, count: int, rate: Rate, every: int = 1) -> Iterator[OpenLoop]:
        """Record what follows as `count` rounds of a loop, in `every` so-manieth iteration."""
        if count < 1:
            raise BadAlgorithm(f"The loop {name!r} has {count} rounds; it needs at least 1.")
        self.stack.append(OpenLoop(name, count, rate, every))
        yield self.stack[-1]
        done = self.stack.pop()
        for report in done.reported:
            # A metric climbs out of its loop as a mean; each loop on the way adds its name. The mean of largest values
            # can only be taken when the pieces of each are joined, so these stay apart.
            how = "mean" if set(self.variables[report.var].combine) <= {None, "mean", "sum"} else "stack"
            outside = self.output(done, f"{report.var}/{done.name}", report.var, how).name
            self.stack[-1].reported.append(replace(report, var=outside, every=report.every * every))
        self.stack[-1].items.append(
            Loop(done.name, done.count, tuple(done.items), tuple(done.outputs), rate, every=every)
        )

    def output(self, loop: OpenLoop, name: str, inner: str, how: How = "stack") -> Value:
        """Let every round's `inner` outlive `loop`."""
        var = self.variables[inner]
        rows = (jax.ShapeDtypeStruct((loop.count, *aval.shape), aval.dtype) for aval in var.avals)
        avals = tuple(strict_aval(jax.eval_shape(REDUCE[how], each)) for each in rows)
        shift = 1 if how == "stack" else 0
        axes = tuple(None if axis is None else axis + shift for axis in var.axes)
        outer = self.stack[self.stack.index(loop) - 1] if loop in self.stack else self.stack[-1]
        self.variables[name] = Var(name, var.treedef, avals, axes, var.combine, var.blocks, outer.name)
        loop.outputs.append(Output(name, inner, how))
        return self.value(name)

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
        trusted: bool = False,
    ) -> Node:
        """Record a node of the innermost open loop. Of a host's node, `run` only tells the types.

        `writes` are names, or a function that names as many results as there turn out to be. `draws` says whether
        pieces of its batch would draw other random numbers; None: if it uses a key for a whole batch. What is `trusted`
        is motet's own, and right in pieces even if its program does not show it.
        """
        self.names.add(name)
        node = self._make(name, kind, run, tuple(reads), writes, site or name, host)
        draws = node.draws if draws is None else draws
        node = replace(node, replay=replay, draws=draws, whole=() if trusted else node.whole)
        self.stack[-1].items.append(node)
        return node

    def behind(self, var: str, name: str, run: Function) -> None:
        """Record a node that reads `var` alone and writes `name`: right behind what makes `var`, and where that is."""
        self._check_scope(name, (var,))
        items, place = next(
            (loop.items, place) for loop in self.stack for place, item in enumerate(loop.items) if var in written(item)
        )
        items.insert(place + 1, self._make(name, "call", run, (var,), (name,), site_of(items[place], var)))

    def rows(self, reads: Sequence[str]) -> Callable[[Sequence[Any]], tuple[int, int]] | None:
        """How to count the rows of a batch, and their blocks, on the values of `reads`: on the first leaf that has the
        environments on its first dimension. None: there is no such leaf."""
        for place, var in enumerate(self.variables[name] for name in reads):
            if 0 in var.axes:
                leaf = var.axes.index(0)
                blocks = var.blocks[leaf]
                return lambda read: (jax.tree.leaves(read[place])[leaf].shape[0], blocks)
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
        for aval, axis in zip(var.avals, var.axes, strict=True):
            if axis not in (0, 1) or aval.shape[axis] != self.num_envs:
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
        code = self.coding.code(run, reads)
        whole = code[WHOLE]
        writes = writes(len(whole.types)) if callable(writes) else writes
        other, ratio = self.coding.other(run, reads, code)
        read = [self.variables[var] for var in reads]
        cuts_rows = kind in ("call", "apply") and any(var.divisible for var in read)
        shares = results.find_shares(read, whole.jaxpr, other.jaxpr, ratio) if cuts_rows else None
        blocks = results.blocks_of(read, [var.avals for var in read])
        loop = None if kind == "init" else self.stack[-1].name
        why: list[str] = []
        for var, tree, resized in zip(writes, whole.types, other.types, strict=True):
            found = None if shares is None else [shares.pop(0) for _ in jax.tree.leaves(tree)]
            why += self._declare(name, var, tree, resized, found, blocks, loop)
        draws = cuts_rows and uses_key(whole.jaxpr)
        jaxprs = {} if host else {cut: each.jaxpr for cut, each in code.items()}
        return Node(name, kind, site, reads, tuple(writes), jaxprs, whole.statistic, draws, tuple(why), host)

    def _declare(
        self,
        node: str,
        name: str,
        tree: Any,
        resized: Any,
        shares: Sequence[results.Share] | None,
        blocks: dict[int, int],
        loop: str | None,
    ) -> tuple[str, ...]:
        """Note a variable's type; a state that exists already must keep its own. -> What only the whole batch gives."""
        leaves, treedef = jax.tree.flatten(tree)
        axes = tuple(self._axis(node, a, b) for a, b in zip(leaves, jax.tree.leaves(resized), strict=True))
        old = self.variables.get(name)
        if old is None:
            pieces = results.same(len(leaves)) if shares is None else results.of_call(name, tree, axes, shares, blocks)
            self.variables[name] = Var(name, treedef, tuple(leaves), axes, pieces.combine, pieces.blocks, loop)
            return pieces.why_whole
        if (old.treedef, old.avals) != (treedef, tuple(leaves)):
            raise BadAlgorithm(
                f"{self.title}.{node} must return {name} as it came: expected {show(self.shape(name))}, "
                f"got {show(tree)}. {difference(self.shape(name), tree)}"
            )
        if shares is not None:
            return results.of_state(name, tree, axes, old, shares).why_whole
        if old.axes != axes:
            raise BadAlgorithm(
                f"{self.title}.{node} must return {name} with the environments on the dimensions on which they came, "
                f"{old.axes}; got {axes}."
            )
        return ()

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
