"""Minibatches: how a batch becomes loops over shuffled parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm
from motet.flow import shuffle
from motet.flow.record import GraphRecorder, NodeRun
from motet.flow.values import split


@dataclass
class Batching:
    """The minibatches of one loop."""

    record: GraphRecorder

    @contextmanager
    def minibatches(self, batch: Any, epochs: int, count: int, sequences: bool) -> Iterator[Any]:
        """See `Flow.minibatches`."""
        record = self.record
        handles, rebuild = split((batch,))
        permute, select = self._dealing(handles, count, sequences)
        with record.loop(record.name("epochs"), epochs, "update"):
            order = record.name("permute")
            record.node(order, "call", permute, [], [order])
            with record.loop(record.name("minibatches"), count, "update"):
                link = record.name("minibatch")
                writes = {handle: f"{link}.{handle.replace('.', '_')}" for handle in handles}
                reads = [order, *handles]
                record.node(record.name("select"), "call", select, reads, list(writes.values()), trusted=True)
                yield rebuild({handle: record.value(name) for handle, name in writes.items()})[0]

    def _dealing(self, handles: list[str], count: int, sequences: bool) -> tuple[Any, Any]:
        """How a batch is shuffled, once for each epoch, and how a minibatch is picked."""
        axes = {axis for handle in handles for axis in self.record.variables[handle].axes}
        if axes == {0}:
            return self._items(handles, count)
        return self._sequences(handles, count) if sequences else self._rows(handles, count)

    def _items(self, handles: list[str], count: int) -> tuple[Any, Any]:
        """How to shuffle and pick rows [N], such as those of a sample, whole sequences [N, L] included."""
        record = self.record
        rows, *others = dict.fromkeys(aval.shape[0] for handle in handles for aval in record.variables[handle].avals)
        if others:
            found = " and ".join(map(str, (rows, *others)))
            raise BadAlgorithm(f"Values of one batch must have the same number of rows; these have {found}.")
        blocks = shuffle.item_blocks(rows, record.num_envs, count)
        record.divisors.append(("minibatches", blocks))

        def permute(here: NodeRun) -> tuple[jax.Array]:
            mine = blocks * here.batch // record.num_envs
            order = shuffle.sequence_permutations(here.key, here.part * mine + jnp.arange(mine), rows // blocks)
            return (order.reshape(mine, count, -1),)

        def select(here: NodeRun, order: jax.Array, *read: Any) -> tuple[Any, ...]:
            return tuple(jax.tree.map(partial(shuffle.select_items, order[:, here.index]), tree) for tree in read)

        return permute, select

    def _rows(self, handles: list[str], count: int) -> tuple[Any, Any]:
        """How to shuffle and pick single steps."""
        time, envs = self.record.batch_shape(handles)
        block = shuffle.block_size(time, envs, count)
        self.record.divisors.append(("minibatches", envs // block))

        def permute(here: NodeRun) -> tuple[jax.Array]:
            return (shuffle.permutation(here.key, time * block, count),)

        def select(here: NodeRun, rows: jax.Array, *read: Any) -> tuple[Any, ...]:
            return tuple(jax.tree.map(partial(shuffle.select, rows[here.index], block), tree) for tree in read)

        return permute, select

    def _sequences(self, handles: list[str], count: int) -> tuple[Any, Any]:
        """How to shuffle and pick whole sequences, one environment of each block at a time."""
        record = self.record
        axes = [record.sequence_axes(handle) for handle in handles]
        blocks = shuffle.sequence_blocks(record.num_envs, count)
        record.divisors.append(("minibatches", blocks))

        def permute(here: NodeRun) -> tuple[jax.Array]:
            mine = here.batch // count
            return (shuffle.sequence_permutations(here.key, here.part * mine + jnp.arange(mine), count),)

        def select(here: NodeRun, order: jax.Array, *read: Any) -> tuple[Any, ...]:
            position = order[:, here.index]
            return tuple(
                jax.tree.unflatten(
                    jax.tree.structure(tree),
                    [
                        shuffle.select_sequences(position, axis, leaf)
                        for axis, leaf in zip(axes_of, jax.tree.leaves(tree), strict=True)
                    ],
                )
                for axes_of, tree in zip(axes, read, strict=True)
            )

        return permute, select
