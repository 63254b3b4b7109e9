"""Replays outside of compiled programs: the contract's operations on NumPy values, wherever the items lie.

A store decides what is written and drawn; where items and trees lie is its keeper's business. The decisions are those
of the pure state, by the same functions, so the same additions, updates and random bits give the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, Self

import jax
import numpy as np

from motet.errors import BadOption
from motet.flow.values import Swept, strict_aval
from motet.replay import frames as pictures_of
from motet.replay.contract import Replay
from motet.replay.draws import Drawn, shares, uniform_places
from motet.replay.frames import Pictures
from motet.replay.prioritised import Prioritised, bad_priority
from motet.replay.ring import Ring, Types
from motet.replay.uniform import Uniform
from motet.replay.windows import Reader

PLACES = ("newest", "count", "going", "floor")
"""What of `Pictures` a store holds itself."""


class SumTree(Protocol):
    """One sum tree for each environment; see motet.replay.tree."""

    def update(self, column: np.ndarray, leaf: np.ndarray, value: np.ndarray) -> None:
        """Set leaves [N] and all that is above them; the last entry for a leaf counts, those of -1 are left out."""
        ...

    def find(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where `share` [N], each from [0, 1], of the sum of all trees ends -> columns, leaves and their values."""
        ...

    def total(self) -> np.float32:
        """The sum of all trees."""
        ...

    @property
    def array(self) -> np.ndarray:
        """All nodes of all trees."""
        ...

    def load(self, array: np.ndarray) -> None:
        """Go on with the nodes that other trees of the same shape had."""
        ...


class Keeper(Protocol):
    """Where arrays lie."""

    def array(self, aval: jax.ShapeDtypeStruct) -> Any:
        """Zeros of a shape and type."""
        ...

    def put(self, array: Any, place: np.ndarray, column: np.ndarray, values: np.ndarray) -> None:
        """Write `values` [N, ...] to places and columns [N] of an array [C, B, ...]."""
        ...

    def take(self, array: Any, place: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The entries at places and columns of any one shape."""
        ...

    def read(self, array: Any) -> np.ndarray:
        """A copy of a whole array."""
        ...

    def write(self, array: Any, values: np.ndarray) -> None:
        """Replace a whole array."""
        ...

    def tree(self, replay: Prioritised, rows: int, columns: int) -> SumTree: ...

    def close(self) -> None:
        """Give everything back. The second time nothing happens."""
        ...


class Store:
    """A replay that owns what it remembers. Close it, or use it in a `with` block."""

    def __init__(self, replay: Replay, example: Any, num_envs: int, keeper: Keeper):
        self.replay, self._keeper = replay, keeper
        whole = Types.of(jax.tree.map(strict_aval, example)).addition(num_envs)
        layout: Ring = jax.eval_shape(lambda: replay.empty(whole, num_envs))
        self._types, self._rows, self._columns = layout.types, layout.rows, num_envs
        self._items = jax.tree.map(keeper.array, layout.items)
        self._pictures: Any = self._empty_pictures(layout.pictures)
        self._tree = keeper.tree(replay, self._rows, num_envs) if isinstance(replay, Prioritised) else None
        self._largest = np.ones(num_envs, np.float32)
        self._written = 0

    @property
    def size(self) -> int:
        """How many items are remembered."""
        return min(self._written, self._rows) * self._columns

    def add(self, new: Any) -> None:
        """Write [T, B, ...] items over the oldest ones. While they are written they cannot be drawn."""
        self._types.check(new, self._columns)
        time, written = self._types.time, self._written + self._types.time
        row, column = self._grid(np.arange(self._written, written, dtype=np.int32))
        if self._tree is not None:
            self._tree.update(column, row % self._rows, np.zeros(row.size, np.float32))
        stored = new
        if isinstance(self._pictures, Pictures):
            stored = pictures_of.bare(new, self._pictures.axes)
            self._add_pictures(new, written)
        place = row % self._rows
        for array, leaf in zip(jax.tree.leaves(self._items), jax.tree.leaves(stored), strict=True):
            self._keeper.put(array, place, column, np.asarray(leaf).reshape(place.size, *leaf.shape[2:]))
        self._written = written
        if isinstance(self.replay, Prioritised):
            self._admit(self.replay, time)

    def sample(self, bits: Any, *, blocks: int = 1) -> Drawn:
        """Draw an item for each of the random bits uint32 [N] (see `draw_bits`). For uniform replays, slots and
        environments are cut into `blocks` alike."""
        bits = np.asarray(bits)
        view = self._view
        if isinstance(self.replay, Prioritised):
            return self._draw(self.replay, view, bits)
        assert isinstance(self.replay, Uniform)
        low, high = self.replay.bounds(np, self._written, self._rows, self._pictures, blocks)
        if (high <= low).any():
            raise BadOption(self._nothing())
        row, column = uniform_places(np, bits, low, high, self._columns // blocks)
        return Drawn(self.replay.read(view, row, column))

    def sweep(self, number: int, steps: int) -> Swept:
        """Batch `number` of a pass through all single steps that are held, oldest first, `steps` rows at a time."""
        return self._view.swept(np.int32(self._written), self._columns, np.int32(number), steps)

    @property
    def _view(self) -> Reader:
        return Reader(np, self._keeper.take, self._items, self._pictures, self._rows)

    def update(self, index: Any, priority: Any) -> None:
        """Give drawn items [N] new priorities. Items of row -1 and those that are overwritten are left out; a priority
        that is no number from 0 on is an error, and then nothing changes."""
        replay = self.replay
        if not isinstance(replay, Prioritised) or self._tree is None:
            raise BadOption("A uniform replay has no priorities to update; use Prioritised.")
        index, priority = np.asarray(index), np.asarray(priority, np.float32)
        row, column = index[:, 0], np.clip(index[:, 1], 0, self._columns - 1)
        there = replay.there(np, self._written, self._rows, self._pictures, row, column)
        bad = there & ~((priority >= 0) & (priority < np.inf))
        if bad.any():
            first = int(np.argmax(bad))
            raise BadOption(bad_priority(int(row[first]), int(column[first]), float(priority[first])))
        value = replay.leaf_of(np, np.where(there, priority, np.float32(0)))
        self._tree.update(column, np.where(there, row % self._rows, -1), value)
        np.maximum.at(self._largest, column, np.where(there, value, np.float32(0)))

    def hold(self, index: Any) -> None:
        """Keep these items [N] from being drawn until they are given a priority again."""
        if self._tree is None:
            raise BadOption("A uniform replay has no priorities to hold back; use Prioritised.")
        row, column = np.asarray(index).T
        self._tree.update(column, np.where(row < 0, -1, row % self._rows), np.zeros(row.size, np.float32))

    def state(self) -> dict[str, np.ndarray]:
        """A copy of all that is remembered, and of all that decides what is drawn and overwritten next."""
        kept = {name: self._keeper.read(array) for name, array in self._kept().items()}
        counts = {"written": np.asarray(self._written, np.int64), "largest": self._largest.copy()}
        trees = {} if self._tree is None else {"tree": np.array(self._tree.array)}
        return {**kept, **{name: np.array(each) for name, each in self._places().items()}, **counts, **trees}

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on exactly from the state of another store of the same replay, wherever that one lies."""
        for name, wanted in self.state_shapes().items():
            if name not in state or state[name].shape != wanted:
                came = state[name].shape if name in state else "nothing"
                raise BadOption(f"The replay's {name} should have shape {wanted}, but {came} came.")
        for name, array in self._kept().items():
            self._keeper.write(array, state[name])
        if self._tree is not None:
            self._tree.load(state["tree"])
        self._written, self._largest = int(state["written"]), np.array(state["largest"])
        if isinstance(self._pictures, Pictures):
            places = {name: np.array(state[f"pictures.{name}"]) for name in PLACES}
            self._pictures = replace(self._pictures, **places)

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        """What a state of this store is made of."""
        plain = {name: np.shape(each) for name, each in {**self._places(), "largest": self._largest}.items()}
        trees = {} if self._tree is None else {"tree": self._tree.array.shape}
        return {**{name: tuple(each.shape) for name, each in self._kept().items()}, **plain, **trees, "written": ()}

    def _kept(self) -> dict[str, Any]:
        """What lies with the keeper."""
        items = {f"items.{number}": leaf for number, leaf in enumerate(jax.tree.leaves(self._items))}
        streams = self._pictures.streams if isinstance(self._pictures, Pictures) else ()
        return items | {f"pictures.streams.{number}": stream for number, stream in enumerate(streams)}

    def _places(self) -> dict[str, np.ndarray]:
        """What is needed to decide where pictures are."""
        if not isinstance(self._pictures, Pictures):
            return {}
        return {f"pictures.{name}": getattr(self._pictures, name) for name in PLACES}

    def close(self) -> None:
        """Give the memory back. The second time nothing happens."""
        self._items, self._pictures, self._tree = (), (), None
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _draw(self, replay: Prioritised, view: Reader, bits: np.ndarray) -> Drawn:
        assert self._tree is not None
        column, leaf, value = self._tree.find(shares(np, bits))
        if not (value > 0).all():
            raise BadOption(self._nothing())
        row = replay.row_of(np, leaf, np.int32(self._written), self._rows).astype(np.int32)
        return Drawn(
            replay.read(view, row, column), np.stack([row, column], 1), replay.weights(np, value, self._written)
        )

    def _nothing(self) -> str:
        window = self.replay.window
        each = f", of which an item takes {window} in a row" if window > 1 else ""
        return (
            f"There is nothing to draw: {min(self._written, self._rows)} steps of {self._columns} environments are "
            f"remembered{each}, and no item has a chance. Add more before drawing."
        )

    def _admit(self, replay: Prioritised, time: int) -> None:
        """Let what is whole now be drawn."""
        assert self._tree is not None
        row, whole = replay.changed_rows(np, self._written, time, self._rows, self._columns, self._pictures)
        column = np.broadcast_to(np.arange(self._columns, dtype=np.int32)[None], row.shape)
        leaf = np.where(whole & (row >= 0), row % self._rows, -1)
        value = np.full(row.size, replay.first_leaf(np, self._largest), np.float32)
        self._tree.update(column.ravel(), leaf.ravel(), value)

    def _grid(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All columns of some rows, flat."""
        column = np.arange(self._columns, dtype=np.int32)
        return np.repeat(row, self._columns), np.tile(column, row.size)

    def _empty_pictures(self, layout: Any) -> Any:
        """Streams and places lie with the keeper; what is needed to decide lies here."""
        if not isinstance(layout, Pictures):
            return ()
        array = self._keeper.array
        count = np.zeros(self._columns, np.int32)
        return replace(
            layout,
            streams=tuple(map(array, layout.streams)),
            newest=np.zeros(layout.newest.shape, np.int32),
            count=count,
            going=count.astype(bool),
            floor=count,
        )

    def _add_pictures(self, new: Any, written: int) -> None:
        """Write the pictures of an addition; rows that lose theirs by it cannot be drawn any more, from before on."""
        pictures: Pictures = self._pictures
        new = jax.tree.map(np.asarray, new)
        where = pictures_of.pushes(np, pictures, new)
        count = where.after[-1] + 1
        row, column = self._grid(np.arange(self._written, written, dtype=np.int32))
        pictures.newest[row % self._rows, column] = where.after.ravel() - 1
        row = pictures_of.candidates(np, pictures, written, self._types.time)
        columns = np.broadcast_to(np.arange(self._columns, dtype=np.int32)[None], row.shape)
        lost = pictures_of.lost(pictures, pictures.newest[row % self._rows, columns], count, row, written)
        if self._tree is not None:
            leaf = np.where(lost, row % self._rows, -1)
            self._tree.update(columns.ravel(), leaf.ravel(), np.zeros(leaf.size, np.float32))
        self._write_pictures(pictures, new, where)
        floor = row[0] + lost.sum(0, dtype=np.int32)
        self._pictures = replace(pictures, count=count, going=where.going, floor=floor)

    def _write_pictures(self, pictures: Pictures, new: Any, where: pictures_of.Pushes) -> None:
        for stream, parts in zip(pictures.streams, pictures_of.writes(np, pictures, new, where), strict=True):
            for place, picture in parts:
                step, column = np.nonzero(place >= 0)
                self._keeper.put(stream, place[step, column], column.astype(np.int32), picture[step, column])
