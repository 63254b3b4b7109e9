"""A node's function as programs: one for each way of cutting the environments, and one more to compare them with.

A node's function takes `NodeRun`, which says for how many environments it runs and with which key, and then what the
node reads. A node that asks for nothing that depends on the cut is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from motet.flow import results
from motet.flow.batch import Scope, row_keys, trace_in
from motet.flow.graph import WHOLE, Cut, Var
from motet.flow.reduction import marks
from motet.flow.values import strict, strict_aval


@dataclass
class NodeRun:
    """Where and when a node runs."""

    environments: int
    key: jax.Array
    part: jax.Array
    """Which piece this is."""
    index: jax.Array
    """The round of the innermost loop."""
    pieces: Fraction = Fraction(1)
    """How many pieces of this size all environments are."""
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

    def row_keys(self, count: int, blocks: int = 1) -> jax.Array:
        """One key for each of the `count` rows that a batch has in this piece, the same whatever piece a row is in.

        Of each of the `blocks` that follow each other in the batch, the piece has its share.
        """
        return row_keys(self.key, self.part, count, blocks, self.pieces)


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


@dataclass(frozen=True)
class Coding:
    """How the functions of one graph's nodes are traced."""

    num_envs: int
    cuts: tuple[Cut, ...]
    variables: Mapping[str, Var]
    divisors: Sequence[tuple[str, int]]

    def code(self, run: Function, reads: tuple[str, ...]) -> dict[Cut, Code]:
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
        avals = [self.variables[var].local(cut.parts) for var in reads]
        return self._traced(run, reads, avals, Fraction(cut.parts), Scope(Fraction(cut.shards), cut.shards > 1))

    def other(self, run: Function, reads: tuple[str, ...], code: dict[Cut, Code]) -> tuple[Code, Fraction]:
        """`run` with another number of environments, a cut's or twice as many, and how many times it the whole is.

        What a statistic of the whole batch is of must be all pieces together, and a dimension of one is too special.
        """
        whole = code[WHOLE]
        if not whole.counts:
            return whole, Fraction(1)
        for cut, each in code.items():
            joined = cut.parts == cut.shards or not whole.statistic
            if cut.parts > 1 and self.num_envs // cut.parts > 1 and joined:
                return each, Fraction(cut.parts)
        half = Fraction(1, 2)
        avals = [self.variables[var].local(half) for var in reads]
        return self._traced(run, reads, avals, half, Scope(half)), half

    def _traced(
        self,
        run: Function,
        reads: tuple[str, ...],
        avals: Sequence[tuple[Any, ...]],
        pieces: Fraction,
        around: Scope,
    ) -> Code:
        """`run` for one of so many `pieces`, on leaves of these types."""
        flat, seen = self._flat(run, reads, pieces)
        around.blocks = results.blocks_of([self.variables[var] for var in reads], avals)
        jaxpr = trace_in(around, flat, *ADDRESS, *(leaf for leaves in avals for leaf in leaves))
        types, counted = seen[-1]
        counts = counted or any(self.variables[var].divisible for var in reads)
        return Code(jaxpr, types, counts, marks.takes_statistics(jaxpr.jaxpr))

    def _flat(self, run: Function, reads: tuple[str, ...], pieces: Fraction) -> tuple[Callable[..., Any], list[Any]]:
        """`run` on flat leaves, and a list that gets, whenever it is traced, the types it returns and whether it asked
        for the number of environments."""
        seen: list[Any] = []

        def flat(key: jax.Array, part: jax.Array, index: jax.Array, *leaves: jax.Array) -> list[jax.Array]:
            trees, rest = [], leaves
            for var in (self.variables[name] for name in reads):
                mine, rest = rest[: len(var.avals)], rest[len(var.avals) :]
                trees.append(var.unpack(mine))
            here = NodeRun(int(self.num_envs / pieces), key, part, index, pieces)
            result = run(here, *trees)
            seen.append((jax.tree.map(strict_aval, result), here.counted))
            return [strict(leaf) for leaf in jax.tree.leaves(result)]

        return flat, seen
