"""The contract of a replay: its options, how large it is, and how items get in and out.

A replay is a frozen value, its options. What is remembered is a state: a pytree of JAX arrays that its methods take
and return, for compiled loops, or a store of the same items elsewhere (`open`). The same additions, updates and
random bits give the same draws in all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp

from motet.errors import BadOption, UnknownName
from motet.flow.values import Swept, strict_aval
from motet.replay import frames as pictures_of
from motet.replay.draws import Drawn
from motet.replay.frames import Pictures, is_empty
from motet.replay.ring import Ring, Types
from motet.replay.size import check_fits, in_words, machine_memory, tree_bytes
from motet.replay.windows import Reader

if TYPE_CHECKING:
    from motet.replay.store import Store


@dataclass(frozen=True)
class Replay(ABC):
    """What all replays have in common: a ring of steps, and what an item is."""

    prioritised: ClassVar[bool] = False
    capacity: int
    """Items remembered, over all environments."""
    _: KW_ONLY
    n_step: int = 1
    """Steps of an item, folded into one transition: rewards are summed with `discount`, up to the end of an episode."""
    discount: float = 0.99
    """What a reward one step later is worth, for `n_step`."""
    sequence: int | None = None
    """Items are so many consecutive steps, [N, L, ...]; None: single transitions."""
    frames: int | None = None
    """Observations stack so many pictures, the newest last; each picture is stored once. None: as they come."""

    def __post_init__(self) -> None:
        for name in ("capacity", "n_step", "sequence", "frames"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadOption(f"{name} must be at least 1, got {value}.")
        if self.sequence is not None and self.n_step > 1:
            raise BadOption(
                f"A sequence holds its steps as they were: sequence={self.sequence} goes with n_step=1, got "
                f"n_step={self.n_step}. Leave one of them out."
            )

    @property
    def window(self) -> int:
        """Consecutive steps that an item is made of."""
        return self.sequence or self.n_step

    @property
    def holds_drawn(self) -> bool:
        """Whether what was drawn is held back until its new priority has come."""
        return False

    # The state.

    def init(self, example: Any, num_envs: int) -> Ring:
        """An empty state for [T, B, ...] additions like `example` (arrays or their types).

        `num_envs` is the number of environments in all, B that of this piece. Rows are a multiple of T, so that no
        addition wraps around.
        """
        check_fits(self.nbytes(example, num_envs), self.capacity, machine_memory(), "this machine")
        return self.empty(jax.tree.map(strict_aval, example), num_envs)

    def empty(self, example: Any, num_envs: int) -> Ring:
        """`init` without asking for the memory."""
        types = Types.of(example)
        rows = self._rows(types.time, num_envs)
        self._check_fields(example)
        pictures = pictures_of.no_pictures(example, self.frames, rows) if self.frames else ()
        stored = pictures_of.bare(example, pictures.axes) if isinstance(pictures, Pictures) else example
        items = jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape[1:]), leaf.dtype), stored)
        columns = jax.tree.leaves(example)[0].shape[1]
        return Ring(items, jnp.zeros((), jnp.int32), pictures, self._no_priorities(rows, columns), types)

    def add(self, state: Ring, new: Any) -> Ring:
        """Write [T, B, ...] items over the oldest ones."""
        state.types.check(new, state.columns)
        stored = new
        if isinstance(state.pictures, Pictures):
            state, stored = _add_pictures(state, new), pictures_of.bare(new, state.pictures.axes)
        place = state.written % state.rows
        items = jax.tree.map(
            lambda old, leaf: jax.lax.dynamic_update_slice_in_dim(old, leaf, place, 0), state.items, stored
        )
        return replace(state, items=items, written=state.written + state.types.time)

    @abstractmethod
    def sample(self, state: Ring, key: jax.Array, part: jax.Array, *, slots: int, blocks: int, size: int) -> Drawn:
        """Draw this piece's `slots` of a batch of `size`. An item is only drawn when all of its steps are there.

        The batch's slots and the environments are cut into `blocks` alike.
        """

    def sweep(self, state: Ring, number: jax.Array, steps: int) -> Swept:
        """Batch `number` of a pass through all single steps that are held, oldest first, `steps` rows at a time."""
        return view_of(state).swept(state.written, state.columns, number, steps)

    def rows(self, example: Any, num_envs: int) -> int:
        """The most steps of each environment that are held."""
        return self._rows(Types.of(example).time, num_envs)

    def size(self, state: Ring) -> jax.Array:
        """How many items are remembered, over the environments of this piece."""
        return state.size * state.columns

    def hold(self, state: Ring, index: jax.Array) -> Ring:
        """Keep these items [N] from being drawn until they are given a priority again."""
        raise NotImplementedError(f"{type(self).__name__} has no priorities")

    def update(self, state: Ring, index: jax.Array, priority: jax.Array) -> Ring:
        """Give drawn items [N] new priorities."""
        raise NotImplementedError(f"{type(self).__name__} has no priorities")

    def complaint(self, state: Ring) -> str | None:
        """What a state has noted that is wrong; None: nothing."""
        return None

    # Its size in bytes.

    def nbytes(self, example: Any, num_envs: int) -> int:
        """The bytes of the state for all environments."""
        whole = Types.of(example).addition(num_envs)
        return tree_bytes(jax.eval_shape(lambda: self.empty(whole, num_envs)))

    def statement(self, example: Any, num_envs: int) -> str:
        """The size in words."""
        need = self.nbytes(example, num_envs)
        items = self._rows(Types.of(example).time, num_envs) * num_envs
        return f"{items:,} items of {need / items:,.0f} bytes, {in_words(need)} in all"

    # Elsewhere.

    def open(self, example: Any, num_envs: int, where: str) -> Store:
        """A store of the same items in the host's memory ("host") or an OpenCL device's ("opencl", "opencl:1")."""
        kind, _, number = where.partition(":")
        if kind == "host" and not number:
            from motet.replay.host_store import HostReplay

            return HostReplay(self, example, num_envs)
        if kind == "opencl" and (not number or number.isdecimal()):
            from motet.replay.opencl import OpenCLReplay

            return OpenCLReplay(self, example, num_envs, int(number or 0))
        raise UnknownName("place for a replay", where, ("host", "opencl", "opencl:1"))

    # For the replays themselves.

    def read(self, view: Reader, row: Any, column: Any) -> Any:
        """The items that begin at rows and columns [N]."""
        if self.sequence is not None:
            return view.sequences(row, column, self.sequence)
        if self.n_step > 1:
            return view.transitions(row, column, self.n_step, self.discount)
        return view.steps(row, column)

    def _no_priorities(self, rows: int, columns: int) -> Any:
        return ()

    def _rows(self, time: int, num_envs: int) -> int:
        rows = self.capacity // num_envs // time * time
        if rows < max(1, self.window):
            least = -(-max(time, self.window) // time) * time
            steps = f" and an item is {self.window} consecutive steps" if self.window > 1 else ""
            raise BadOption(
                f"The replay holds {self.capacity} items, but one addition is {time} steps x {num_envs} environments"
                f"{steps}; give it a capacity of at least {least * num_envs}."
            )
        return rows

    def _check_fields(self, example: Any) -> None:
        """Windows and stacks need to know where episodes end."""
        option = f"n_step={self.n_step}" if self.n_step > 1 else f"frames={self.frames}" if self.frames else None
        needs = ("observation", "reward", "terminated", "truncated", "next_observation", "valid", "discount")
        missing = [name for name in needs if not hasattr(example, name)]
        missing += [name for name in ("terminated", "truncated") if is_empty(getattr(example, name, None))]
        if option and missing:
            raise BadOption(
                f"{option} needs transitions that say where episodes end; these have no {', '.join(missing)}. "
                "Remember `rollout.transitions`."
            )


def view_of(state: Ring) -> Reader:
    """A state as what items are read through."""

    def take(leaf: jax.Array, place: jax.Array, column: jax.Array) -> jax.Array:
        return leaf.at[place, column].get(mode="promise_in_bounds")

    return Reader(jnp, take, state.items, state.pictures, state.rows)


def _add_pictures(state: Ring, new: Any) -> Ring:
    pictures, time, written = state.pictures, state.types.time, state.written + state.types.time
    where = pictures_of.pushes(jnp, pictures, new)
    column = jnp.broadcast_to(jnp.arange(state.columns)[None], where.after.shape)
    streams = []
    for stream, parts in zip(pictures.streams, pictures_of.writes(jnp, pictures, new, where), strict=True):
        for place, picture in parts:
            place = jnp.where(place < 0, stream.shape[0], place)  # out of bounds: dropped
            stream = stream.at[place, column].set(picture, mode="drop")
        streams.append(stream)
    newest = jax.lax.dynamic_update_slice_in_dim(pictures.newest, where.after - 1, state.written % state.rows, 0)
    count = where.after[-1] + 1
    row = pictures_of.candidates(jnp, pictures, written, time)
    columns = jnp.broadcast_to(jnp.arange(state.columns)[None], row.shape)
    lost = pictures_of.lost(pictures, newest[row % state.rows, columns], count, row, written)
    floor = row[0] + jnp.sum(lost, 0, dtype=jnp.int32)
    after = replace(pictures, streams=tuple(streams), newest=newest, count=count, going=where.going, floor=floor)
    return replace(state, pictures=after)
