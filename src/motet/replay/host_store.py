"""Replay in the host's memory: NumPy arrays that other processes can share."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from motet.memory import reserve
from motet.replay.contract import Replay
from motet.replay.prioritised import Prioritised
from motet.replay.size import check_fits, machine_memory
from motet.replay.store import Store
from motet.replay.tree_host import HostTree


class HostReplay(Store):
    """Remembers in shared memory of the host."""

    def __init__(self, replay: Replay, example: Any, num_envs: int):
        check_fits(replay.nbytes(example, num_envs), replay.capacity, machine_memory(), "this machine")
        super().__init__(replay, example, num_envs, HostKeeper())


class HostKeeper:
    """Arrays in memory that no name leads to: nothing is left behind, however the process ends."""

    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []

    def array(self, aval: jax.ShapeDtypeStruct) -> np.ndarray:
        size = int(np.prod(aval.shape, dtype=np.int64)) * aval.dtype.itemsize
        memory = reserve(max(size, 1), "A replay on the host", "Lower its capacity")
        self._maps.append(mmap.mmap(memory, max(size, 1)))
        os.close(memory)  # the mapping keeps the memory
        return np.frombuffer(self._maps[-1], aval.dtype, size // aval.dtype.itemsize).reshape(aval.shape)

    def put(self, array: np.ndarray, place: np.ndarray, column: np.ndarray, values: np.ndarray) -> None:
        array[place, column] = values

    def take(self, array: np.ndarray, place: np.ndarray, column: np.ndarray) -> np.ndarray:
        return array[place, column]

    def read(self, array: np.ndarray) -> np.ndarray:
        return np.array(array)

    def write(self, array: np.ndarray, values: np.ndarray) -> None:
        array[:] = values

    def tree(self, replay: Prioritised, rows: int, columns: int) -> HostTree:
        shape = replay.tree_shape(rows)
        return HostTree(shape, self.array(jax.ShapeDtypeStruct((columns, shape.nodes), np.float32)))

    def close(self) -> None:
        for each in self._maps:
            with suppress(BufferError):  # someone still looks at it: it goes with the last look
                each.close()
        self._maps.clear()
