"""Windows of steps: what is drawn at a row when items are n-step transitions, sequences or stacks of pictures.

Written once for NumPy, JAX and OpenCL arrays: `take` fetches from any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from motet.flow.values import Swept
from motet.replay.frames import Pictures, dressed, is_empty


@dataclass(frozen=True)
class Reader:
    """What remembered items are read through."""

    xp: Any
    """numpy or jax.numpy: what `take` returns, and rows and columns are."""
    take: Callable[[Any, Any, Any], Any]
    """(array [C, B, ...], places, columns) -> the entries there, for places and columns of any one shape."""
    items: Any
    pictures: Pictures | tuple[()]
    rows: int

    def steps(self, row: Any, column: Any) -> Any:
        """The steps at rows and columns of any one shape, as they were added."""
        if not isinstance(self.pictures, Pictures):
            return self._fetch(self.items, row, column)
        return replace(
            self._fetch(replace(self.items, observation=(), next_observation=()), row, column),
            observation=self._observed("observation", row, column),
            next_observation=self._observed("next_observation", row, column),
        )

    def sequences(self, row: Any, column: Any, length: int) -> Any:
        """The `length` steps from each row [N] on -> [N, L, ...]."""
        return self.steps(*self._window(row, column, length))

    def transitions(self, row: Any, column: Any, n: int, discount: float) -> Any:
        """The n steps from each row [N] on as one transition: the discounted sum of their rewards and what came after.

        The end of an episode and a step that never happened end it early; its `discount` is that of all steps used.
        """
        items = self.items
        reward, count = self._returns(row, column, n, discount)
        last = row + count - 1
        untouched = replace(
            items, observation=(), next_observation=(), reward=(), terminated=(), truncated=(), discount=()
        )
        powers = np.asarray([discount**steps for steps in range(n + 1)], reward.dtype)
        return replace(
            self._fetch(untouched, row, column),
            observation=self._observed("observation", row, column),
            reward=reward,
            terminated=self._fetch(items.terminated, last, column),
            truncated=self._fetch(items.truncated, last, column),
            next_observation=self._observed("next_observation", last, column),
            discount=self.xp.asarray(powers)[count],
        )

    def swept(self, written: Any, columns: int, number: Any, steps: int) -> Swept:
        """The `steps` rows from `number` x `steps` behind the oldest on, of all columns -> [steps, B, ...]."""
        xp = self.xp
        first = xp.maximum(written - self.rows, 0) + number * steps
        row = xp.broadcast_to((first + xp.arange(steps, dtype=np.int32))[:, None], (steps, columns))
        column = xp.broadcast_to(xp.arange(columns, dtype=np.int32)[None], row.shape)
        held = row < written
        if isinstance(self.pictures, Pictures):
            held = held & (row >= self.pictures.floor[None])
        return Swept(self.steps(row, column), held)

    def _returns(self, row: Any, column: Any, n: int, discount: float) -> tuple[Any, Any]:
        """The discounted sums of rewards [N], and of how many steps."""
        xp, items = self.xp, self.items
        window = self._window(row, column, n)
        over = self._fetch(items.terminated, *window) | self._fetch(items.truncated, *window)
        happened = xp.ones_like(over) if is_empty(items.valid) else self._fetch(items.valid, *window)
        rewards = self._fetch(items.reward, *window)
        number = rewards.dtype.type
        total, used = rewards[:, 0], xp.ones_like(over[:, 0])
        count = used.astype(np.int32)
        for step in range(1, n):
            used = used & ~over[:, step - 1] & happened[:, step - 1] & happened[:, step]
            # `where` keeps compilers from fusing the product with the sum, which would round once instead of twice.
            total = total + xp.where(used, rewards[:, step] * number(discount**step), number(0))
            count = count + used.astype(np.int32)
        return total, count

    def _observed(self, name: str, row: Any, column: Any) -> Any:
        """An observation, or a next one, with its stacks."""
        observation = self._fetch(getattr(self.items, name), row, column)
        if not isinstance(self.pictures, Pictures):
            return observation
        newest = self.take(self.pictures.newest, row % self.rows, column) + (name == "next_observation")
        return dressed(observation, self._stacks(newest, column))

    def _stacks(self, newest: Any, column: Any) -> list[Any]:
        """The stacks that end with the pictures `newest`, one of each stream."""
        assert isinstance(self.pictures, Pictures)
        xp, frames = self.xp, self.pictures.frames
        places = self.pictures.streams[0].shape[0]
        place = (
            newest[..., None] + xp.arange(1 - frames, 1, dtype=np.int32).reshape((1,) * newest.ndim + (-1,))
        ) % places
        columns = xp.broadcast_to(column[..., None], place.shape)
        axes = [axis for axis in self.pictures.axes if axis is not None]
        return [
            xp.moveaxis(self.take(stream, place, columns), newest.ndim, newest.ndim + axis)
            for stream, axis in zip(self.pictures.streams, axes, strict=True)
        ]

    def _fetch(self, tree: Any, row: Any, column: Any) -> Any:
        place = row % self.rows
        return jax.tree.map(lambda leaf: self.take(leaf, place, column), tree)

    def _window(self, row: Any, column: Any, length: int) -> tuple[Any, Any]:
        xp = self.xp
        steps = row[:, None] + xp.arange(length, dtype=np.int32)[None]
        return steps, xp.broadcast_to(column[:, None], steps.shape)
