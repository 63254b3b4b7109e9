"""What a piece of a program computes, as a pure function of a store of variables. Everything here is traced.

A store maps a variable's name to the tuple of its leaves. A fragment that owns a state does not keep the state's
views (such as the policy): it takes them from the state when a node reads them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from motet.engine.inside import Exchange
from motet.flow.batch import SHARDS
from motet.flow.combine import ACROSS
from motet.flow.graph import REDUCE, Cut, Graph, Node, uses_key
from motet.plan.project import Recv, Rounds, Send, Step

Store = dict[str, tuple[Any, ...]]


class Evaluator:
    """One fragment's way of reading a graph."""

    def __init__(self, graph: Graph, cut: Cut, steps: Sequence[Step], exchange: Exchange | None = None):
        self.graph, self.cut, self.exchange = graph, cut, exchange
        self.owned = frozenset().union(*(self.raw_writes(step) for step in steps)) - set(graph.views)

    # What reads and writes what.

    def raw_writes(self, step: Step) -> frozenset[str]:
        if isinstance(step, Node):
            return frozenset(step.writes)
        if isinstance(step, Rounds):
            inside = frozenset().union(*(self.raw_writes(child) for child in step.body))
            return inside | {out.name for out in step.outputs}
        return frozenset(step.wire.vars) if isinstance(step, Recv) else frozenset()

    def local(self, var: str) -> str:
        """The variable of the store that holds `var`: its own, or the state that it is a view of."""
        view = self.graph.views.get(var)
        return view.of if view and view.of in self.owned else var

    def writes(self, step: Step) -> frozenset[str]:
        return frozenset(var for var in self.raw_writes(step) if self.local(var) == var)

    def reads(self, step: Step) -> frozenset[str]:
        """What `step` needs from before it."""
        if isinstance(step, Node):
            return frozenset(map(self.local, step.reads))
        if isinstance(step, Rounds):
            return self.exposed(step.body) | self.kept(step)
        return frozenset(step.wire.vars) if isinstance(step, Send) else frozenset()

    def kept(self, loop: Rounds) -> frozenset[str]:
        """The states that a loop leaves as they are when it does not run."""
        if loop.every == 1:
            return frozenset()
        return frozenset(var for var in self.writes(loop) if self.graph.variables[var].loop is None)

    def exposed(self, steps: Iterable[Step]) -> frozenset[str]:
        reads: set[str] = set()
        done: set[str] = set()
        for step in steps:
            reads |= self.reads(step) - done
            done |= self.writes(step)
        return frozenset(reads)

    def keyed(self, steps: Iterable[Step]) -> list[str]:
        """The nodes below that draw random numbers."""
        names = []
        for step in steps:
            if isinstance(step, Rounds):
                names += self.keyed(step.body)
            elif isinstance(step, Node) and step.host is None and _draws(step.code[self.cut]):
                names.append(step.name)
        return names

    # What it computes.

    def run(
        self,
        steps: Sequence[Step],
        store: Mapping[str, Any],
        keys: Mapping[str, Any],
        part: Any,
        index: Any,
        live: frozenset[str],
    ) -> Store:
        """Run `steps` in order -> the store with what they wrote. `live` is what is needed afterwards."""
        store = dict(store)
        for position, step in enumerate(steps):
            later = live | self.exposed(steps[position + 1 :])
            if isinstance(step, Node):
                store.update(self.node(step, store, keys, part, index))
            elif isinstance(step, Rounds):
                store.update(self.rounds(step, store, keys, part, index, later))
        return store

    def node(self, node: Node, store: Mapping[str, Any], keys: Mapping[str, Any], part: Any, index: Any) -> Store:
        leaves = [leaf for var in node.reads for leaf in self.read(store, var)]
        if node.host is not None:
            assert self.exchange is not None
            results = self.exchange.step(self.graph, self.cut, node, part, leaves)
        else:
            code = node.code[self.cut]
            key = keys.get(node.name)
            if key is None and hasattr(code, "jaxpr"):
                key = jax.random.key(0)  # never looked at
            results = list(_function(code)(key, part, index, *leaves))
        written: Store = {}
        for var in (self.graph.variables[name] for name in node.writes if name not in self.graph.views):
            mine, results = results[: len(var.avals)], results[len(var.avals) :]
            if self.cut.shards > 1:
                mine = [ACROSS[how](leaf, SHARDS) if how else leaf for leaf, how in zip(mine, var.combine, strict=True)]
            written[var.name] = tuple(mine)
        return written

    def read(self, store: Mapping[str, Any], var: str) -> tuple[Any, ...]:
        held = self.local(var)
        return store[var] if held == var else tuple(jaxpr_as_fun(self.graph.views[var].code)(*store[held]))

    def rounds(
        self, loop: Rounds, store: Store, keys: Mapping[str, Any], part: Any, index: Any, live: frozenset[str]
    ) -> Store:
        """A loop as one `scan`. Only what is read before it is written, or afterwards, is carried along."""
        inside = frozenset().union(*(self.writes(step) for step in loop.body))
        carried = sorted(inside & (self.exposed(loop.body) | live))
        outputs = [out for out in loop.outputs if out.name in live]
        needed = frozenset(carried) | {self.local(out.inner) for out in outputs}
        names = self.keyed(loop.body)

        def keys_of(number: Any) -> jax.Array | None:
            return fold(_stack(keys, names), number) if names else None

        def body(carry: Store, now: Any) -> tuple[Store, Any]:
            number, keys_now = now
            table = {name: keys_now[place] for place, name in enumerate(names)}
            after = self.run(loop.body, {**store, **carry}, table, part, number.astype(jnp.int32), needed)
            return {name: after[name] for name in carried}, [after[out.inner] for out in outputs]

        def round_(carry: Store, number: Any) -> tuple[Store, Any]:
            number = np.uint32(loop.first) + number.astype(jnp.uint32)
            return body(carry, (number, keys_of(number)))

        first = {name: store[name] if name in store else self._blank(name) for name in carried}
        if loop.every > 1:
            due = (jnp.asarray(index, jnp.int32) + 1) % loop.every == 0
            last, row = _at_most_once(due, round_, first)
            rows = jax.tree.map(lambda leaf: leaf[None], row)
        elif loop.count == 1:
            large = sum(leaf.nbytes for leaf in jax.tree.leaves(first)) >= LARGE
            last, row = _once(round_, first, part) if large else round_(first, np.uint32(0))
            rows = jax.tree.map(lambda leaf: leaf[None], row)
        else:
            # All rounds' keys are drawn at once, outside of the loop: cheaper than one small hash a round.
            indices = jnp.asarray(np.arange(loop.first, loop.first + loop.count, dtype=np.uint32))
            last, rows = jax.lax.scan(body, first, (indices, keys_of(indices)))
        return {
            **last,
            **{out.name: tuple(map(REDUCE[out.how], leaves)) for out, leaves in zip(outputs, rows, strict=True)},
        }

    def _blank(self, name: str) -> tuple[Any, ...]:
        return tuple(jnp.zeros(aval.shape, aval.dtype) for aval in self.graph.variables[name].local(self.cut.parts))


LARGE = 2**16
"""Bytes of a state of which a copy takes longer than a loop around what writes it."""


def node_keys(root: jax.Array, names: Sequence[str], path: Sequence[Any]) -> dict[str, jax.Array]:
    """The key of each node in one round: fold_in(root, node, round of the outermost loop, ..., innermost)."""
    if not names:
        return {}
    keys = fold(root, np.asarray([zlib.crc32(name.encode()) for name in names], np.uint32))
    for index in path:
        keys = fold(keys, index)
    return {name: keys[place] for place, name in enumerate(names)}


def fold(keys: jax.Array, data: Any) -> jax.Array:
    """`fold_in` of every number into every key -> [*data, *keys]. One hash of many compiles faster than many of one."""
    shape = (*jnp.shape(data), *keys.shape)
    flat = jnp.broadcast_to(keys, shape).reshape(-1)
    numbers = jnp.broadcast_to(jnp.reshape(data, (*jnp.shape(data), *[1] * keys.ndim)), shape).reshape(-1)
    return jax.vmap(jax.random.fold_in)(flat, numbers).reshape(shape)


def _once(round_: Callable[[Store, Any], Any], first: Store, part: Any) -> tuple[Store, Any]:
    """`round_` number 0 as a loop, of which XLA knows neither that it has one round nor which: else it dissolves the
    loop into what is around it, and then a write into a large state, such as a replay, becomes a copy of the whole."""
    return _at_most_once(jnp.asarray(part, jnp.int32) != -1, round_, first)  # no piece has that number


def _at_most_once(due: Any, round_: Callable[[Store, Any], Any], first: Store) -> tuple[Store, Any]:
    """`round_` number 0 if it is due; else what was there before, and zeros. A loop, where a state is changed in its
    place, and not a condition, which XLA may copy it for."""
    zero = jnp.zeros((), jnp.int32)
    blank = jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), jax.eval_shape(round_, first, zero)[1])
    return jax.lax.fori_loop(zero, jnp.where(due, 1, 0), lambda number, carry: round_(carry[0], number), (first, blank))


def _stack(keys: Mapping[str, jax.Array], names: Sequence[str]) -> jax.Array:
    return jnp.stack([keys[name] for name in names])


def _function(code: Any) -> Any:
    """A node's code as a function; a plain function (of a graph that was not traced) is one already."""
    return jaxpr_as_fun(code) if hasattr(code, "jaxpr") else code


def _draws(code: Any) -> bool:
    return hasattr(code, "jaxpr") and uses_key(code)
