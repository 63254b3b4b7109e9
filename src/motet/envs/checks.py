"""From what environments return to arrays: every value is checked against its space, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import le
from typing import Any

import gymnasium
import numpy as np

from motet.bounds import RECORD, Bounds, note
from motet.envs.form import Form, flatten, is_nested, parts, paths
from motet.errors import BadEnvironment
from motet.flow.host import Leaves

Blame = Callable[[int, str], Exception]
"""The error that says what is wrong with which row."""

ROUNDING = 1e-6
"""How far outside of its bounds a float may lie, relative to the bound (or to 1, if that is more)."""

FEW = 32
"""So many numbers are looked at one by one faster than by NumPy."""

LARGEST: dict[np.dtype, float] = {
    np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)
}

WEAKER = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Kind of a space's dtype -> kinds of arrays whose values it can hold, if they are within its bounds."""


class LeafCheck:
    """One simple space: checks its values and writes them into an array.

    Numbers of a Box that are finite but outside of its bounds are noted in `record`, unless `check_bounds` makes them
    an error. `number` is the part's own.
    """

    def __init__(
        self, space: gymnasium.Space, path: str, dtype: str, check_bounds: bool, number: int, record: np.ndarray
    ):
        assert space.shape is not None and space.dtype is not None
        self.path, self.shape, self.dtype = path, tuple(space.shape), np.dtype(space.dtype)
        self.number, self.record = number, record
        self.start: Any = getattr(space, "start", 0)
        self.is_shifted = bool(np.any(self.start))
        self.low, self.high = _bounds(space, np.dtype(dtype), True)
        self.least, self.most = _bounds(space, np.dtype(dtype), check_bounds)
        self.declared = declared_bounds(space, path)
        # Where every value of the dtype is allowed, there is nothing to look for.
        self.is_free = _is_free(self.dtype, self.low, self.high)

        self.is_held_alike = np.dtype(dtype) == self.dtype and not self.is_shifted
        """Whether motet's arrays hold a value as the environment gives it."""

        size = int(np.prod(self.shape))
        self.few = None
        if 0 < size <= FEW and self.dtype.kind == "f" and not self.is_shifted:
            self.few = tuple(np.broadcast_to(bound, self.shape).ravel().tolist() for bound in (self.low, self.high))

    def is_plain(self, value: Any) -> bool:
        """Whether one environment's value is an array of a few good numbers, at a glance."""
        if self.few is None or type(value) is not np.ndarray:
            return False
        if value.dtype != self.dtype or value.shape != self.shape:
            return False
        numbers = value.ravel().tolist()
        low, high = self.few
        return all(map(le, low, numbers)) and all(map(le, numbers, high))

    def write(self, values: Sequence[Any] | np.ndarray, out: np.ndarray, blame: Blame) -> None:
        """Values of n environments into out [n, ...]."""
        try:
            batch = np.asarray(values)
        except ValueError:  # The values have different shapes.
            raise self._find(values, blame) from None
        if batch.shape != (len(out), *self.shape) or not self._is_good(batch):
            if batch.shape != (len(out), *self.shape) or not self._is_usable(batch):
                raise self._find(values, blame)
            outside = (batch < self.low) | (batch > self.high)
            note(self.record, self.number, self.declared, batch, outside)
        if self.is_shifted:
            batch = batch - self.start
        if batch is out:  # held there already
            return
        np.copyto(out, batch if batch.shape == out.shape else batch.reshape(out.shape), casting="unsafe")

    def _is_good(self, batch: np.ndarray) -> bool:
        if batch.dtype.kind not in WEAKER[self.dtype.kind]:
            return False
        if self.is_free and batch.dtype == self.dtype:
            return True
        # NaN is in no interval, and the bounds are finite, so this finds what is not finite too.
        return bool(np.logical_and.reduce((batch >= self.low) & (batch <= self.high), None))

    def _is_usable(self, batch: np.ndarray) -> bool:
        """Whether it holds nothing worse than numbers outside of bounds that are not insisted on."""
        if batch.dtype.kind not in WEAKER[self.dtype.kind]:
            return False
        return bool(((batch >= self.least) & (batch <= self.most)).all())

    def _find(self, values: Sequence[Any] | np.ndarray, blame: Blame) -> Exception:
        for row, value in enumerate(values):
            complaint = self._complaint(value)
            if complaint:
                return blame(row, f"{self.path} {complaint}")
        return blame(0, f"{self.path} should have one value for each environment, but there are {len(values)}")

    def _complaint(self, value: Any) -> str:
        try:
            array = np.asarray(value)
        except ValueError:
            return f"should be an array of shape {self.shape}, but its parts have different lengths"
        if array.dtype.kind not in WEAKER[self.dtype.kind]:
            return f"should have dtype {self.dtype}, but has {array.dtype} ({type(value).__name__})"
        if array.shape != self.shape:
            return f"should have shape {self.shape}, but has {array.shape}"
        inside = (array >= self.least) & (array <= self.most)
        if inside.all():
            return ""
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        number, place = array[where], f" at {list(where)}" if where else ""
        if not np.isfinite(number):
            return f"should be finite, but holds {number}{place}"
        low, high = (np.broadcast_to(bound, self.shape)[where] for bound in (self.least, self.most))
        return (
            f"holds {number}{place}, outside of its space, {low:.7g} to {high:.7g}. Correct the space; or do not "
            "insist on its bounds (check_bounds, --strict), if nothing relies on them"
        )


class Observations:
    """Writes observations of many environments, part by part. `record`: see `motet.bounds`."""

    def __init__(self, form: Form, record: np.ndarray | None = None):
        record = np.zeros(RECORD) if record is None else record
        self.space, self.nested = form.observation_space, is_nested(form.observation_space)
        self.parts = [
            LeafCheck(part, path, leaf.dtype, form.check_bounds, number, record)
            for number, (part, path, leaf) in enumerate(
                zip(parts(self.space), paths(self.space, "the observation"), form.observation, strict=True)
            )
        ]

    def held_alike(self, out: Leaves) -> np.ndarray | None:
        """The array whose rows hold observations exactly as environments give them; None where they must be changed."""
        return out[0] if not self.nested and self.parts[0].is_held_alike else None

    def write_held(self, values: Sequence[Any], out: Leaves, blame: Blame) -> None:
        """Copies of what each environment gave, or `HELD` for rows that hold it already."""
        if all(value is HELD for value in values):
            self.parts[0].write(out[0], out[0], blame)
            return
        self.write([out[0][row] if value is HELD else value for row, value in enumerate(values)], out, blame)

    def is_plain(self, value: Any) -> bool:
        """Whether it may be written as it is."""
        return not self.nested and self.parts[0].is_plain(value)

    def write(self, values: Sequence[Any], out: Leaves, blame: Blame) -> None:
        """One observation for each row of `out`."""
        if not self.nested:
            self.parts[0].write(values, out[0], blame)
            return
        columns = zip(*[self._flatten(row, value, blame) for row, value in enumerate(values)], strict=True)
        for part, column, leaf in zip(self.parts, columns, out, strict=True):
            part.write(column, leaf, blame)

    def write_batch(self, value: Any, out: Leaves, blame: Blame) -> None:
        """One value of the space with all environments on the first axis."""
        for part, column, leaf in zip(self.parts, self._flatten(0, value, blame), out, strict=True):
            part.write(column, leaf, blame)

    def _flatten(self, row: int, value: Any, blame: Blame) -> list[Any]:
        try:
            return flatten(self.space, value)
        except BadEnvironment as error:
            raise blame(row, f"the observation {error}") from None


HELD = object()


def copied(value: Any) -> Any:
    """The same value in memory of its own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: copied(each) for name, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(copied, value))
    return value


def write_rewards(values: Sequence[Any] | np.ndarray, out: np.ndarray, blame: Blame) -> None:
    """Finite numbers, one for each environment."""
    largest = LARGEST[out.dtype]
    # What nearly all environments return is good at a glance: if all numbers together are not too large, none is.
    if _are(values, FLOATS) and len(values) == len(out) and sum(map(abs, values)) <= largest:
        out[:] = values
        return

    def is_good(batch: np.ndarray) -> bool:
        return batch.dtype.kind in "fiub" and bool((np.abs(batch) <= largest).all())

    _write_scalars("the reward should be a finite number", is_good, values, out, blame)


def write_flags(name: str, values: Sequence[Any] | np.ndarray, out: np.ndarray, blame: Blame) -> None:
    """Bools, one for each environment."""
    if _are(values, BOOLS) and len(values) == len(out):
        out[:] = values
        return
    _write_scalars(f"{name} should be a bool", lambda batch: batch.dtype == np.bool_, values, out, blame)


FLOATS = frozenset((float, np.float64, np.float32))
BOOLS = frozenset((bool, np.bool_))


def _are(values: Sequence[Any] | np.ndarray, types: frozenset[type]) -> bool:
    return isinstance(values, tuple | list) and types.issuperset(map(type, values))


def _write_scalars(
    expected: str,
    is_good: Callable[[np.ndarray], bool],
    values: Sequence[Any] | np.ndarray,
    out: np.ndarray,
    blame: Blame,
) -> None:
    try:
        batch = np.asarray(values)
    except ValueError:  # Some are arrays.
        batch = np.empty((0, 0))
    if batch.shape != out.shape or not is_good(batch):
        for row, value in enumerate(values):
            single = np.asarray(value)
            if single.shape != () or not is_good(single):
                raise blame(row, f"{expected}, but is {value!r} ({type(value).__name__})")
        raise blame(0, f"{expected} for each of {len(out)} environments, but there are {len(values)}")
    np.copyto(out, batch, casting="unsafe")


def declared_bounds(space: gymnasium.Space, path: str) -> Bounds:
    """What a space says of itself; only those of a Box are ever compared with."""
    if isinstance(space, gymnasium.spaces.Box):
        return Bounds(path, space.low, space.high)
    return Bounds(path, np.zeros(space.shape or ()), np.zeros(space.shape or ()))


def all_bounds(form: Form) -> list[Bounds]:
    """Of every part of an observation."""
    space = form.observation_space
    return [declared_bounds(*each) for each in zip(parts(space), paths(space, "the observation"), strict=True)]


def _bounds(space: gymnasium.Space, held: np.dtype, check: bool) -> tuple[Any, Any]:
    """What values are compared with: finite, with room for rounding, and one number where all are equal."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if not isinstance(space, gymnasium.spaces.Box):
        return 0, 1
    low, high = (_float_bounds if space.dtype.kind == "f" else _whole_bounds)(space, held, check)
    return _one_if_equal(low), _one_if_equal(high)


def _float_bounds(box: gymnasium.spaces.Box, held: np.dtype, check: bool) -> tuple[np.ndarray, np.ndarray]:
    limit = min(LARGEST[np.dtype(box.dtype)], LARGEST[held])
    if not check:
        return np.asarray(-limit), np.asarray(limit)

    def moved(bound: np.ndarray, sign: int) -> np.ndarray:
        wide = bound.astype(np.float64)
        size = np.maximum(1.0, np.abs(np.where(np.abs(wide) < limit, wide, 0.0)))
        # In the space's own dtype, or every comparison would convert the whole batch.
        return np.clip(wide + sign * ROUNDING * size, -limit, limit).astype(box.dtype)

    return moved(box.low, -1), moved(box.high, 1)


def _whole_bounds(box: gymnasium.spaces.Box, held: np.dtype, check: bool) -> tuple[np.ndarray, np.ndarray]:
    if held.kind == "b":
        return np.asarray(False), np.asarray(True)
    limits = np.iinfo(held)
    if not check:
        return np.asarray(limits.min), np.asarray(limits.max)
    return np.maximum(box.low, limits.min), np.minimum(box.high, limits.max)


def _is_free(dtype: np.dtype, low: Any, high: Any) -> bool:
    if dtype.kind not in "iu":
        return dtype.kind == "b"
    limits = np.iinfo(dtype.name)
    return bool(np.all(low == limits.min) and np.all(high == limits.max))


def _one_if_equal(bound: np.ndarray) -> Any:
    return bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound
