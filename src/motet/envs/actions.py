"""From motet's arrays of actions to the actions that Gymnasium's environments take."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from operator import le
from typing import Any

import gymnasium
import numpy as np

from motet.envs.form import Form, is_nested, parts, paths, unflatten
from motet.errors import BadAlgorithm
from motet.flow.host import Leaves

FEW = 32
"""So many numbers are looked at one by one faster than by NumPy."""

Convert = Callable[[np.ndarray], np.ndarray]
"""From the actions of n environments, as an algorithm gives them, to what the environments take."""


class Actions:
    """Converts the actions of n environments at once. The results are copies: environments may keep them."""

    def __init__(self, form: Form):
        self.space, self.nested = form.action_space, is_nested(form.action_space)
        self.single = form.action_space if isinstance(form.action_space, gymnasium.spaces.Discrete) else None
        self.converts = [
            _convert(part, path) for part, path in zip(parts(self.space), paths(self.space, "the action"), strict=True)
        ]

    def rows(self, action: Leaves) -> list[Any]:
        """One action for each environment."""
        if self.single is not None:
            numbers = action[0].tolist()
            if min(numbers) >= 0 and max(numbers) < self.single.n:
                start = int(self.single.start)
                return [number + start for number in numbers] if start else numbers
        if not self.nested:
            return list(self.converts[0](action[0]))
        columns = [convert(leaf) for convert, leaf in zip(self.converts, action, strict=True)]
        return [unflatten(self.space, row) for row in zip(*columns, strict=True)]

    def batch(self, action: Leaves) -> Any:
        """One value of the space with all environments on the first axis."""
        columns = [convert(leaf) for convert, leaf in zip(self.converts, action, strict=True)]
        return unflatten(self.space, columns)


def _convert(part: gymnasium.Space, path: str) -> Convert:
    if isinstance(part, gymnasium.spaces.Box):
        return _clip(part, path)
    if isinstance(part, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        counts = part.n if isinstance(part, gymnasium.spaces.Discrete) else np.asarray(part.nvec)
        return _count_from(part.start, counts, np.dtype(part.dtype), path)
    return _count_from(0, np.full(part.shape or (), 2), np.dtype(part.dtype), path)


def _clip(box: gymnasium.spaces.Box, path: str) -> Convert:
    low, high = box.low.ravel().tolist(), box.high.ravel().tolist()

    def is_plain(leaf: np.ndarray) -> bool:
        """Whether it is a few numbers within the bounds, as most are."""
        numbers = leaf.ravel().tolist()
        return all(map(le, cycle(low), numbers)) and all(map(le, numbers, cycle(high)))

    def convert(leaf: np.ndarray) -> np.ndarray:
        if leaf.size <= FEW and is_plain(leaf):
            return leaf.astype(box.dtype)
        if leaf.dtype.kind == "f" and np.isnan(leaf).any():
            row = int(np.argwhere(np.isnan(leaf))[0][0])
            raise BadAlgorithm(f"{path} for environment {row} of its worker should be a number, but holds NaN.")
        if box.dtype == np.bool_:
            return leaf.astype(np.bool_)
        return np.minimum(np.maximum(leaf, box.low), box.high).astype(box.dtype)

    return convert


def _count_from(start: Any, counts: Any, dtype: np.dtype, path: str) -> Convert:
    shape = np.shape(counts)

    def convert(leaf: np.ndarray) -> np.ndarray:
        numbers = leaf.reshape(len(leaf), *shape).astype(dtype)
        if not ((numbers >= 0) & (numbers < counts)).all():
            raise BadAlgorithm(f"{path} should be at least 0 and below {counts}, but is one of {np.unique(numbers)}.")
        return numbers + start

    return convert
