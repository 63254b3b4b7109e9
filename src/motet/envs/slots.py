"""The arrays of a pool: two slots, used in turn, over one piece of memory that may be shared."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from motet.envs.form import Form
from motet.errors import BadAlgorithm
from motet.flow.host import Leaves

LINE = 64
"""Every array begins on a cache line of its own."""


class Slot(NamedTuple):
    """Everything that goes in and out of one step of B environments."""

    action: Leaves
    observation: Leaves
    next_observation: Leaves
    reward: np.ndarray  # [B]
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B] bool

    def rows(self, rows: slice) -> Slot:
        """The same arrays, of some of the environments."""

        def cut(leaves: Leaves) -> Leaves:
            return tuple(leaf[rows] for leaf in leaves)

        return Slot(
            cut(self.action),
            cut(self.observation),
            cut(self.next_observation),
            self.reward[rows],
            self.terminated[rows],
            self.truncated[rows],
        )

    def put(self, action: Leaves) -> None:
        """Copy actions in."""
        if len(action) != len(self.action):
            raise BadAlgorithm(f"An action should have {len(self.action)} leaves, but has {len(action)}.")
        for number, (here, given) in enumerate(zip(self.action, action, strict=True)):
            if here.shape != (given.shape if isinstance(given, np.ndarray) else np.shape(given)):
                raise BadAlgorithm(
                    f"Leaf {number} of the actions should have shape {here.shape}, but has {np.shape(given)}."
                )
            np.copyto(here, given, casting="same_kind")


def slots_size(form: Form, count: int) -> int:
    """The bytes of both slots for `count` environments."""
    return 2 * sum(_padded(shape, dtype) for shape, dtype in _fields(form, count))


def slots_over(buffer: Any, offset: int, form: Form, count: int) -> tuple[Slot, Slot]:
    """Both slots, as views of a buffer from `offset` on."""
    # np.ndarray(buffer=...) would not hold on to the buffer: a shared one could be unmapped under a living array.
    everything = np.frombuffer(buffer, np.uint8)

    def one(offset: int) -> tuple[Slot, int]:
        arrays = []
        for shape, dtype in _fields(form, count):
            size = math.prod(shape) * dtype.itemsize
            arrays.append(everything[offset : offset + size].view(dtype).reshape(shape))
            offset += _padded(shape, dtype)
        a, o = len(form.action), len(form.observation)
        action, first, last = arrays[:a], arrays[a : a + o], arrays[a + o : a + 2 * o]
        reward, terminated, truncated = arrays[a + 2 * o :]
        return Slot(tuple(action), tuple(first), tuple(last), reward, terminated, truncated), offset

    first, offset = one(offset)
    second, _ = one(offset)
    return first, second


def _fields(form: Form, count: int) -> list[tuple[tuple[int, ...], np.dtype]]:
    leaves = [*form.action, *form.observation, *form.observation]
    ends = [(form.reward, ()), ("bool", ()), ("bool", ())]
    return [((count, *leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves] + [
        ((count, *shape), np.dtype(dtype)) for dtype, shape in ends
    ]


def _padded(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.ceil(math.prod(shape) * dtype.itemsize / LINE) * LINE
