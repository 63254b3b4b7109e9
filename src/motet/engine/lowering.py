"""What a call computes, as a pure function of variables. Everything here is traced."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.bridge import Bridge
from motet.engine.variables import Variables
from motet.flow.batch import SHARDS
from motet.flow.combine import across
from motet.flow.graph import REDUCE, Cut, Graph, Node, uses_key
from motet.flow.jaxprs import jaxpr_as_fun
from motet.plan.liveness import Liveness
from motet.plan.project import Rounds, Statement
from motet.plan.schedule import Call


class Lowering:
    """One fragment's way of reading a graph."""

    def __init__(self, graph: Graph, cut: Cut, live: Liveness, bridge: Bridge | None = None):
        self.graph, self.cut, self.live, self.bridge = graph, cut, live, bridge

    def keyed(self, steps: Iterable[Statement]) -> list[str]:
        """The nodes below that draw random numbers."""
        names = []
        for step in steps:
            if isinstance(step, Rounds):
                names += self.keyed(step.body)
            elif isinstance(step, Node) and step.host is None and _draws(step.code[self.cut]):
                names.append(step.name)
        return names

    def outcome(self, call: Call, values: Mapping[str, Any], root: Any, path: Sequence[Any], part: Any) -> Variables:
        """What a call makes of `values` in the round `path` of the loops around it."""
        keys = node_keys(root, self.keyed(call.body), path)
        index = path[-1].astype(np.int32) if len(path) else np.int32(0)
        after = self.run(call.body, values, keys, part, index, frozenset(map(self.live.held_as, call.writes)))
        return {name: self.read(after, name) for name in call.writes}

    def run(
        self,
        steps: Sequence[Statement],
        values: Mapping[str, Any],
        keys: Mapping[str, Any],
        part: Any,
        index: Any,
        live: frozenset[str],
    ) -> Variables:
        """Run `steps` in order -> the values with what they wrote. `live` is what is needed afterwards."""
        values = dict(values)
        for position, step in enumerate(steps):
            later = live | self.live.exposed(steps[position + 1 :])
            if isinstance(step, Node):
                values.update(self.node(step, values, keys, part, index))
            elif isinstance(step, Rounds):
                values.update(self.rounds(step, values, keys, part, index, later))
        return values

    def node(self, node: Node, values: Mapping[str, Any], keys: Mapping[str, Any], part: Any, index: Any) -> Variables:
        leaves = [leaf for var in node.reads for leaf in self.read(values, var)]
        if node.host is not None:
            assert self.bridge is not None
            results = self.bridge.step(self.graph, self.cut, node, part, leaves)
        else:
            code = node.code[self.cut]
            key = keys.get(node.name)
            if key is None and hasattr(code, "jaxpr"):
                key = jax.random.key(0)  # never looked at
            results = list(_function(code)(key, part, index, *leaves))
        written: Variables = {}
        vars = [self.graph.variables[name] for name in node.writes if name not in self.graph.views]
        if self.cut.shards > 1:
            results = across(results, [how for var in vars for how in var.combine], SHARDS)
        for var in vars:
            mine, results = results[: len(var.avals)], results[len(var.avals) :]
            written[var.name] = tuple(mine)
        return written

    def read(self, values: Mapping[str, Any], var: str) -> tuple[Any, ...]:
        held = self.live.held_as(var)
        return values[var] if held == var else tuple(jaxpr_as_fun(self.graph.views[var].code)(*values[held]))

    def rounds(
        self, loop: Rounds, values: Variables, keys: Mapping[str, Any], part: Any, index: Any, live: frozenset[str]
    ) -> Variables:
        """A loop as one `scan`. Only what is read before it is written, or afterwards, is carried along."""
        inside = frozenset().union(*(self.live.writes(step) for step in loop.body))
        carried = sorted(inside & (self.live.exposed(loop.body) | live))
        outputs = [out for out in loop.outputs if out.name in live]
        needed = frozenset(carried) | {self.live.held_as(out.inner) for out in outputs}
        names = self.keyed(loop.body)

        def keys_of(number: Any) -> jax.Array | None:
            return fold(_stack(keys, names), number) if names else None

        def body(carry: Variables, now: Any) -> tuple[Variables, Any]:
            number, keys_now = now
            table = {name: keys_now[place] for place, name in enumerate(names)}
            after = self.run(loop.body, {**values, **carry}, table, part, number.astype(jnp.int32), needed)
            return {name: after[name] for name in carried}, [after[out.inner] for out in outputs]

        def round_(carry: Variables, number: Any) -> tuple[Variables, Any]:
            number = np.uint32(loop.first) + number.astype(jnp.uint32)
            return body(carry, (number, keys_of(number)))

        first = {name: values[name] if name in values else self._blank(name) for name in carried}
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


def _once(round_: Callable[[Variables, Any], Any], first: Variables, part: Any) -> tuple[Variables, Any]:
    """`round_` number 0 as a loop, of which XLA knows neither that it has one round nor which: else it dissolves the
    loop into what is around it, and then a write into a large state, such as a replay, becomes a copy of the whole."""
    return _at_most_once(jnp.asarray(part, jnp.int32) != -1, round_, first)  # no piece has that number


def _at_most_once(due: Any, round_: Callable[[Variables, Any], Any], first: Variables) -> tuple[Variables, Any]:
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
