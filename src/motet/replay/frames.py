"""Stacks of pictures, stored once for each picture.

An observation that stacks the last F pictures repeats each of them F times, and again as the next observation. Here
every environment has a stream of pictures instead: F of them when an episode begins, whatever the environment fills a
first stack with, and after that one for each step, the newest of the true next observation. The stack of a step is
then always the F pictures up to a place in the stream, and the stack after it the same one place later, also where an
episode ends; only that place is kept with the step.

The stream is a ring too. It is longer than that of the items by a sixteenth, which is enough for episodes that last
16 F steps on average. Where episodes are shorter, the oldest steps lose their pictures before they are overwritten
themselves, and are no longer drawn from then on: `floor` is the first row of an environment that still has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadOption
from motet.flow.values import show


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pictures:
    """The pictures of B environments."""

    streams: tuple[Any, ...]  # each [P, B, ...]: one for each stack in an observation
    newest: Any  # int32 [C, B] where the newest picture of a step's observation is, counted from the start
    count: Any  # int32 [B] pictures since the start
    going: Any  # bool [B] whether the last step left its episode going
    floor: Any  # int32 [B] the first row whose pictures are all there
    axes: tuple[int | None, ...] = field(metadata={"static": True})
    """For each leaf of an observation, which of its dimensions is the stack; None: it is none."""
    frames: int = field(metadata={"static": True})


def no_pictures(example: Any, frames: int, rows: int) -> Pictures:
    """An empty stream for each stack in the observations of an addition like `example`, [T, B, ...]."""
    leaves = jax.tree.leaves(example.observation)
    axes = tuple(_stack_axis(leaf.shape[2:], frames) for leaf in leaves)
    if all(axis is None for axis in axes):
        raise BadOption(
            f"frames={frames} needs observations that stack {frames} pictures, as their first or last dimension; "
            f"these are {show(example.observation)}. Give frames the size of the stack, or None to store them whole."
        )
    time, columns = leaves[0].shape[:2]
    places = max(rows + rows // 16 + 2 * frames, time * (1 + frames) + frames)
    streams = tuple(
        jnp.zeros((places, columns, *_without(leaf.shape[2:], axis)), leaf.dtype)
        for leaf, axis in zip(leaves, axes, strict=True)
        if axis is not None
    )
    newest, count, floor = (jnp.zeros(shape, jnp.int32) for shape in ((rows, columns), columns, columns))
    return Pictures(streams, newest, count, jnp.zeros(columns, bool), floor, axes, frames)


def bare(items: Any, axes: tuple[int | None, ...]) -> Any:
    """Items without the stacks in their observations."""

    def strip(tree: Any) -> Any:
        leaves, treedef = jax.tree.flatten(tree)
        return treedef.unflatten([leaf if axis is None else () for leaf, axis in zip(leaves, axes, strict=True)])

    return replace(items, observation=strip(items.observation), next_observation=strip(items.next_observation))


def dressed(observation: Any, stacks: list[Any]) -> Any:
    """A bare observation with its stacks put back."""
    rest = iter(stacks)
    return jax.tree.map(lambda leaf: next(rest) if is_empty(leaf) else leaf, observation, is_leaf=is_empty)


def is_empty(tree: Any) -> bool:
    return isinstance(tree, tuple) and not tree


@dataclass(frozen=True)
class Pushes:
    """Where the pictures of an addition go, counted from the start."""

    start: Any  # bool [T, B] which steps begin an episode
    after: Any  # int32 [T, B] where the newest picture of each next observation goes; the start's F lie before it
    going: Any  # bool [B]


def pushes(xp: Any, pictures: Pictures, new: Any) -> Pushes:
    """Lay out an addition. A step that never happened belongs to no episode: it begins one and ends it."""
    happened = xp.ones_like(new.terminated) if is_empty(new.valid) else new.valid
    going = ~(new.terminated | new.truncated) & happened
    before = xp.concatenate([pictures.going[None], going[:-1]])
    start = ~(before & happened)
    pushed = 1 + pictures.frames * start.astype(np.int32)
    after = pictures.count[None] + xp.cumsum(pushed, 0, dtype=np.int32) - 1
    return Pushes(start, after, going[-1])


def stacks_of(observation: Any, axes: tuple[int | None, ...], xp: Any) -> list[Any]:
    """The stacks [T, B, ...] of an observation as pictures, [F, T, B, ...]."""
    leaves = jax.tree.leaves(observation)
    return [xp.moveaxis(leaf, axis + 2, 0) for leaf, axis in zip(leaves, axes, strict=True) if axis is not None]


def writes(xp: Any, pictures: Pictures, new: Any, where: Pushes) -> list[list[tuple[Any, Any]]]:
    """For each stream what is written: (places [T, B], pictures [T, B, ...]); a place of -1 is left out."""
    places, frames = pictures.streams[0].shape[0], pictures.frames
    observed = stacks_of(new.observation, pictures.axes, xp)
    following = stacks_of(new.next_observation, pictures.axes, xp)
    result = []
    for first, then in zip(observed, following, strict=True):
        opening = [
            (xp.where(where.start, (where.after - frames + each) % places, -1), first[each]) for each in range(frames)
        ]
        result.append([*opening, (where.after % places, then[-1])])
    return result


def candidates(xp: Any, pictures: Pictures, written: Any, time: int) -> Any:
    """Rows [E, B] that may have lost their pictures by an addition after which `written` rows are there: an addition
    overwrites at most T (1 + F) pictures, and every row has one of its own."""
    base = xp.maximum(pictures.floor, written - pictures.newest.shape[0])
    return base[None] + xp.arange(time * (1 + pictures.frames), dtype=np.int32)[:, None]


def lost(pictures: Pictures, newest: Any, count: Any, row: Any, written: Any) -> Any:
    """Which of the rows [E, B], whose newest pictures are at `newest`, have lost a picture."""
    places = pictures.streams[0].shape[0]
    return (row < written) & (newest - pictures.frames + 1 < count[None] - places)


def _stack_axis(shape: tuple[int, ...], frames: int) -> int | None:
    """The dimension that stacks pictures: the first or the last one, if it has that size."""
    if len(shape) < 2:
        return None
    return next((axis for axis in (0, len(shape) - 1) if shape[axis] == frames), None)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
