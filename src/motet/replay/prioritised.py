"""Prioritised replay (Schaul et al. 2016): items are drawn in proportion to their priorities, by sum trees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadOption
from motet.replay import tree_xla
from motet.replay.contract import Replay, view_of
from motet.replay.draws import Drawn, draw_bits, shares
from motet.replay.frames import Pictures, candidates
from motet.replay.power import power
from motet.replay.ring import Ring
from motet.replay.tree import TreeShape


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Priorities:
    """What is known of the items of B environments. Every leaf can be cut along the environments."""

    tree: Any  # float32 [B, nodes]: a sum tree over the rows of each environment
    largest: Any  # float32 [B] the largest leaf so far
    fault: Any  # int32 [B] the row of the first priority that was no number from 0 on; -1: none
    fault_value: Any  # float32 [B] that priority


@dataclass(frozen=True)
class Prioritised(Replay):
    """Remember the last `capacity` items; each is drawn in proportion to (priority + epsilon) ** alpha.

    New items get a priority once all their steps are there. A batch is stratified: slot j of N draws from the j-th of
    N equal parts of the whole sum.
    """

    prioritised: ClassVar[bool] = True
    alpha: float = 0.6
    """How much priorities count: 0 is uniform, 1 in proportion."""
    beta: float = 0.4
    """How much importance weights make up for it, at the start."""
    last_beta: float = 1.0
    """And after `anneal` rows."""
    anneal: int = 0
    """Rows added until `last_beta` is reached; 0: `beta` stays."""
    epsilon: float = 1e-6
    """Added to priorities, so that none is never drawn again."""
    initial: float | None = None
    """The priority of new items; None: the largest so far."""
    fan_out: int = 16
    """Children of a node of the sum trees."""
    exclusive: bool = False
    """True: what was drawn is not drawn again before its new priority has come, in a plan that draws ahead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("alpha", 1), ("beta", 1), ("last_beta", 1), ("anneal", None), ("epsilon", None)):
            value = getattr(self, name)
            if not value >= 0 or (most is not None and value > most):
                raise BadOption(f"{name} must be {'at least 0' if most is None else f'from 0 to {most}'}, got {value}.")
        if self.initial is not None and not 0 < self.initial < np.inf:
            raise BadOption(f"initial must be a number above 0, or None for the largest so far, got {self.initial}.")
        TreeShape(1, self.fan_out)

    @property
    def holds_drawn(self) -> bool:
        return self.exclusive

    def add(self, state: Ring, new: Any) -> Ring:
        before = state
        state = super().add(state, new)
        known = state.priorities
        row, whole = self.changed_rows(jnp, state.written, state.types.time, state.rows, state.columns, state.pictures)
        if isinstance(before.pictures, Pictures):
            gone = candidates(jnp, before.pictures, state.written, state.types.time)
            gone = jnp.where(gone < state.pictures.floor[None], gone, -1)
            row = jnp.concatenate([row, gone])
            whole = jnp.concatenate([whole, jnp.zeros(gone.shape, bool)])
        value = jnp.where(whole, self.first_leaf(jnp, known.largest), jnp.float32(0))
        column = jnp.broadcast_to(jnp.arange(state.columns, dtype=jnp.int32)[None], row.shape)
        leaf = jnp.where(row < 0, -1, row % state.rows)
        tree = tree_xla.update(
            self.tree_shape(state.rows), known.tree, column.ravel(), leaf.ravel(), value.ravel(), unique=True
        )
        return replace(state, priorities=replace(known, tree=tree))

    def sample(self, state: Ring, key: jax.Array, part: jax.Array, *, slots: int, blocks: int, size: int) -> Drawn:
        """A piece of a state draws its slots from its own environments; if nothing can be drawn, rows are -1."""
        share = shares(jnp, draw_bits(key, part, slots))
        column, leaf, value = tree_xla.find(self.tree_shape(state.rows), state.priorities.tree, share)
        row = self.row_of(jnp, leaf, state.written, state.rows)
        index = jnp.stack([jnp.where(value > 0, row, -1), column], 1)
        return Drawn(self.read(view_of(state), row, column), index, self.weights(jnp, value, state.written))

    def hold(self, state: Ring, index: jax.Array) -> Ring:
        """Let no one draw these items [N] until they are given a priority again."""
        row, column = index[:, 0], jnp.clip(index[:, 1], 0, state.columns - 1)
        leaf = jnp.where(row < 0, -1, row % state.rows)
        known, nothing = state.priorities, jnp.zeros(row.shape, jnp.float32)
        tree = tree_xla.update(self.tree_shape(state.rows), known.tree, column, leaf, nothing)
        return replace(state, priorities=replace(known, tree=tree))

    def update(self, state: Ring, index: jax.Array, priority: jax.Array) -> Ring:
        """Give drawn items [N] new priorities. Items of row -1 and those that are overwritten are left out, and so
        are priorities that are no numbers from 0 on; the first of those is noted: see `complaint`."""
        known = state.priorities
        row, column = index[:, 0], jnp.clip(index[:, 1], 0, state.columns - 1)
        priority = priority.astype(jnp.float32)
        there = self.there(jnp, state.written, state.rows, state.pictures, row, column)
        good = (priority >= 0) & (priority < jnp.inf)
        counted = there & good
        value = jnp.where(counted, self.leaf_of(jnp, jnp.where(good, priority, 0)), 0)
        leaf = jnp.where(counted, row % state.rows, -1)
        tree = tree_xla.update(self.tree_shape(state.rows), known.tree, column, leaf, value)
        return replace(
            state,
            priorities=replace(
                _noted(known, there & ~good, row, column, priority),
                tree=tree,
                largest=known.largest.at[column].max(value),
            ),
        )

    def complaint(self, state: Ring) -> str | None:
        """What was wrong with the first bad priority that a state has seen; None: nothing."""
        fault = np.asarray(state.priorities.fault)
        if (fault < 0).all():
            return None
        column = int(np.argmax(fault >= 0))
        return bad_priority(int(fault[column]), column, float(state.priorities.fault_value[column]))

    # For every kind of store; xp is numpy or jax.numpy.

    def tree_shape(self, rows: int) -> TreeShape:
        return TreeShape(rows, self.fan_out)

    def leaf_of(self, xp: Any, priority: Any) -> Any:
        """What a priority counts in the tree, float32."""
        return power(xp, priority + np.float32(self.epsilon), self.alpha)

    def first_leaf(self, xp: Any, largest: Any) -> Any:
        """What a new item counts."""
        return xp.max(largest) if self.initial is None else self.leaf_of(np, np.asarray([self.initial], np.float32))[0]

    def row_of(self, xp: Any, leaf: Any, written: Any, rows: int) -> Any:
        """The number of the newest row in a place."""
        return written - 1 - (written - 1 - leaf) % rows

    def weights(self, xp: Any, value: Any, written: Any) -> Any:
        """(N P) ** -beta over the largest of the batch, which leaves the smallest leaf over each to the beta."""
        share = xp.minimum(written / self.anneal, 1.0) if self.anneal else 0.0
        beta = self.beta + share * (self.last_beta - self.beta)
        safe = xp.where(value > 0, value, np.float32(np.inf))
        return xp.where(value > 0, (xp.min(safe) / safe) ** xp.asarray(beta, np.float32), np.float32(0))

    def there(self, xp: Any, written: Any, rows: int, pictures: Any, row: Any, column: Any) -> Any:
        """Which items [N] can still be drawn."""
        there = (row >= 0) & (row >= written - rows) & (row <= written - self.window)
        return there & (row >= pictures.floor[column]) if isinstance(pictures, Pictures) else there

    def changed_rows(self, xp: Any, written: Any, time: int, rows: int, columns: int, pictures: Any) -> tuple[Any, Any]:
        """After an addition: the rows [E, B] whose priorities change (-1: none), and which of them are whole now.

        These are the T new ones, and those before them that waited for the new ones to become whole.
        """
        row = written - time - self.window + 1 + xp.arange(self.window - 1 + time, dtype=np.int32)
        new, whole = row >= written - time, row <= written - self.window
        changed = new | (whole & (row >= 0) & (row >= written - rows))
        row = xp.broadcast_to(xp.where(changed, row, -1)[:, None], (row.shape[0], columns))
        whole = xp.broadcast_to(whole[:, None], row.shape)
        if isinstance(pictures, Pictures):
            row = xp.where(row >= pictures.floor[None], row, -1)
        return row, whole

    def _no_priorities(self, rows: int, columns: int) -> Priorities:
        return Priorities(
            tree_xla.empty(self.tree_shape(rows), columns),
            jnp.ones(columns, jnp.float32),
            jnp.full(columns, -1, jnp.int32),
            jnp.zeros(columns, jnp.float32),
        )


def bad_priority(row: int, column: int, value: float) -> str:
    return (
        f"The priority of the item in row {row} of environment {column} is {value}; it must be a number from 0 on. "
        "Look for what made it in the loss; row -1 leaves an item out."
    )


def _noted(known: Priorities, bad: jax.Array, row: jax.Array, column: jax.Array, value: jax.Array) -> Priorities:
    """The first bad entry of each column is noted, unless one was before."""
    count = row.shape[0]
    first = jnp.full(known.fault.shape, count).at[column].min(jnp.where(bad, jnp.arange(count), count))
    news, entry = (known.fault < 0) & (first < count), jnp.minimum(first, count - 1)
    return replace(
        known,
        fault=jnp.where(news, row[entry], known.fault),
        fault_value=jnp.where(news, value[entry], known.fault_value),
    )
