"""The three implementations behind one interface, and a replay so plain that it can be read to be right."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadOption
from motet.flow.values import Transitions
from motet.replay import Drawn, Prioritised, Replay, draw_bits
from motet.replay import tree_xla as xla
from motet.replay.opencl import Device, DeviceTree
from motet.replay.tree import TreeShape
from motet.replay.tree_host import HostTree

PLACES = ("xla", "host", "opencl")

Small = partial(Prioritised, fan_out=4)
"""Trees of a few leaves, which compile sooner with fewer children."""


@cache
def compiled(replay: Replay) -> tuple[Any, Any, Any]:
    sample = jax.jit(
        lambda state, key, slots, blocks: replay.sample(
            state, key, jnp.int32(0), slots=slots, blocks=blocks, size=slots
        ),
        static_argnums=(2, 3),
    )
    update = jax.jit(replay.update, donate_argnums=0) if isinstance(replay, Prioritised) else None
    return jax.jit(replay.add, donate_argnums=0), sample, update


class Xla:
    """The pure state as a store."""

    def __init__(self, replay: Replay, example: Any, num_envs: int):
        self.replay, self.state = replay, replay.init(example, num_envs)
        self._add, self._sample, self._update = compiled(replay)

    @property
    def size(self) -> int:
        return int(self.replay.size(self.state))

    def add(self, new: Any) -> None:
        self.state = self._add(self.state, new)

    def sample(self, key: jax.Array, slots: int, blocks: int = 1) -> Drawn:
        return jax.tree.map(np.asarray, self._sample(self.state, key, slots, blocks))

    def update(self, index: Any, priority: Any) -> None:
        assert isinstance(self.replay, Prioritised) and self._update is not None
        self.state = self._update(self.state, index, priority)
        complaint = self.replay.complaint(self.state)
        if complaint:
            raise BadOption(complaint)

    def nodes(self) -> np.ndarray:
        return np.asarray(self.state.priorities.tree)

    def close(self) -> None:
        pass


class Stored:
    """A store that is asked with keys."""

    def __init__(self, replay: Replay, example: Any, num_envs: int, place: str):
        self.store = replay.open(example, num_envs, place)
        self.add, self.update, self.close = self.store.add, self.store.update, self.store.close

    @property
    def size(self) -> int:
        return self.store.size

    def sample(self, key: jax.Array, slots: int, blocks: int = 1) -> Drawn:
        return self.store.sample(draw_bits(key, 0, slots), blocks=blocks)

    def nodes(self) -> np.ndarray:
        tree: Any = self.store._tree
        return tree.array


def opened(replay: Replay, example: Any, num_envs: int, place: str) -> Any:
    return Xla(replay, example, num_envs) if place == "xla" else Stored(replay, example, num_envs, place)


class XlaTree:
    """The tree's pure functions as an object."""

    def __init__(self, shape: TreeShape, columns: int):
        self._array = xla.empty(shape, columns)
        self._update, self._find = _tree_functions(shape)

    @property
    def array(self) -> np.ndarray:
        return np.asarray(self._array)

    def update(self, column: np.ndarray, leaf: np.ndarray, value: np.ndarray) -> None:
        self._array = self._update(self._array, column, leaf, value)

    def find(self, share: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.asarray, self._find(self._array, share)))


@cache
def _tree_functions(shape: TreeShape) -> tuple[Any, Any]:
    def update(*arguments: jax.Array) -> jax.Array:
        return xla.update(shape, *arguments)

    return jax.jit(update, donate_argnums=0), jax.jit(lambda tree, share: xla.find(shape, tree, share))


def a_tree(place: str, shape: TreeShape, columns: int) -> Any:
    if place == "xla":
        return XlaTree(shape, columns)
    if place == "host":
        return HostTree(shape, np.zeros((columns, shape.nodes), np.float32))
    return DeviceTree(the_device(), shape, columns)


@cache
def the_device() -> Device:
    return Device()


def steps(first: int, time: int, envs: int, *, ends: Any = None, cuts: Any = None, happened: Any = ()) -> Transitions:
    """Rows `first` on: every number says which row and environment it is of."""
    row = np.arange(first, first + time, dtype=np.float32)[:, None].repeat(envs, 1)
    env = np.arange(envs, dtype=np.float32)[None].repeat(time, 0)
    observation = np.stack([row, env], -1)
    no = np.zeros((time, envs), bool)
    return Transitions(
        observation=observation,
        action=(row * 10 + env).astype(np.int32),
        reward=(np.float32(0.1) * row + env).astype(np.float32),
        terminated=no if ends is None else ends,
        next_observation=observation + np.float32([1, 0]),
        valid=happened,
        truncated=no if cuts is None else cuts,
    )


def joined(history: list[Any]) -> Any:
    """All additions as one, [W, B, ...]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *history)


class Plain:
    """Prioritised replay by lists and one running sum, for priorities that float32 adds exactly."""

    def __init__(self, replay: Prioritised, rows: int, envs: int):
        self.replay, self.rows, self.envs = replay, rows, envs
        self.written, self.largest = 0, 1.0
        self.priority: dict[tuple[int, int], float] = {}

    def add(self, time: int) -> None:
        self.written += time
        first = self.replay.initial or self.largest
        alive = range(max(0, self.written - self.rows), self.written - self.replay.window + 1)
        self.priority = {(row, env): self.priority.get((row, env), first) for row in alive for env in range(self.envs)}

    def update(self, index: np.ndarray, priority: np.ndarray) -> None:
        for (row, env), each in zip(index.tolist(), priority.tolist(), strict=True):
            if (row, env) in self.priority:
                self.priority[row, env] = each
                self.largest = max(self.largest, each)

    def draw(self, bits: np.ndarray) -> np.ndarray:
        order = sorted(self.priority, key=lambda item: (item[1], item[0] % self.rows))
        sums = np.cumsum([self.priority[item] for item in order])
        found = []
        for slot, each in enumerate(bits.tolist()):
            inside = np.float32(slot) + np.float32((each >> 8) / 2**24)
            target = inside * np.float32(1 / len(bits)) * np.float32(sums[-1])
            hit = np.flatnonzero(target < sums)
            positive = [place for place, item in enumerate(order) if self.priority[item] > 0]
            found.append(order[hit[0] if hit.size else positive[-1]])
        return np.array(found, np.int32)
