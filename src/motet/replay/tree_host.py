"""Sum trees in NumPy arrays, [B, nodes], walked by loops that numba compiles.

A tree is walked item by item and level by level, which vectorised NumPy can only do with many small calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.errors import BadOption
from motet.replay.tree import TreeShape


class HostTree:
    """Trees in an array of the caller's, zeros of [columns, shape.nodes] float32."""

    def __init__(self, shape: TreeShape, array: np.ndarray):
        self.shape, self.array = shape, array
        self._loops = compiled_loops()
        self._flat, self._columns, self._bits = array.reshape(-1), array.shape[0], (0,) * shape.shift
        self._counts, self._offsets = np.array(shape.counts), np.array(shape.offsets)
        top = TreeShape(self._columns, shape.fan_out)
        self._top_counts, self._top_offsets = np.array(top.counts), np.array(top.offsets)
        self._top = np.zeros(top.nodes, np.float32)

    def update(self, column: np.ndarray, leaf: np.ndarray, value: np.ndarray) -> None:
        """Set leaves [N] and all that is above them; the last entry for a leaf counts, those of -1 are left out."""
        self._loops.update(
            self._flat,
            self._columns,
            self._counts,
            self._offsets,
            self._bits,
            np.asarray(column, np.int32),
            np.asarray(leaf, np.int32),
            np.asarray(value, np.float32),
        )

    def load(self, array: np.ndarray) -> None:
        self.array[:] = array

    def total(self) -> np.float32:
        """The sum of all trees."""
        self._loops.join(self._top, self._top_counts, self._top_offsets, self._bits, self._flat, self.shape.nodes)
        return self._top[0]

    def find(self, share: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where `share` [N], each from [0, 1], of the sum of all trees ends -> columns, leaves and their values."""
        total = self.total()
        column, leaf = np.zeros(share.shape, np.int32), np.zeros(share.shape, np.int32)
        value = np.empty(share.shape, np.float32)
        self._loops.find(
            self._top, self._top_offsets, self._flat, self._offsets, self._bits, share, total, column, leaf, value
        )
        return column, leaf, value


def compiled_loops() -> Any:
    """The loops of the tree. Compiling takes seconds the first time; the result is kept on disk."""
    try:
        from motet.replay import tree_loops
    except ImportError as error:
        raise BadOption(
            "A replay on the host needs numba, which is not installed: pip install 'motet[replay]'. "
            "Replays on XLA or OpenCL work without it."
        ) from error
    return tree_loops
