"""The ring that remembered items lie in, one column for each environment.

Rows are numbered from the start of the run; row r lies in place r modulo C.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadOption
from motet.flow.values import show, strict_aval


@dataclass(frozen=True)
class Types:
    """What one addition looks like: a structure of [T, B, ...] leaves, whatever B."""

    time: int
    treedef: Any
    items: tuple[jax.ShapeDtypeStruct, ...]
    """The leaves without T and B."""

    @classmethod
    def of(cls, example: Any) -> Types:
        leaves, treedef = jax.tree.flatten(jax.tree.map(strict_aval, example))
        return cls(
            leaves[0].shape[0], treedef, tuple(jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype) for leaf in leaves)
        )

    def addition(self, columns: int) -> Any:
        """The types of an addition for so many environments."""
        front = (self.time, columns)
        return self.treedef.unflatten([jax.ShapeDtypeStruct((*front, *item.shape), item.dtype) for item in self.items])

    def check(self, new: Any, columns: int) -> None:
        """Refuse an addition of other types, naming its first leaf that differs."""
        expected, got = self.addition(columns), jax.tree.map(strict_aval, new)
        if jax.tree.structure(expected) != jax.tree.structure(got):
            raise BadOption(
                f"What is added to a replay must be built like its example: expected {self.treedef}, got "
                f"{jax.tree.structure(got)}. Open another replay for items of another structure."
            )
        pairs = zip(jax.tree_util.tree_flatten_with_path(expected)[0], jax.tree.leaves(got), strict=True)
        for (path, wanted), leaf in pairs:
            if (wanted.shape, wanted.dtype) != (leaf.shape, leaf.dtype):
                raise BadOption(
                    f"What is added to a replay must be like its example, [T, B, ...]: {jax.tree_util.keystr(path)} "
                    f"should be {show(wanted)}, got {show(leaf)}. Convert it before, or open the replay with it."
                )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ring:
    """Remembered items of B environments, and what tells which may be drawn."""

    items: Any  # [C, B, ...]; stacks of pictures are left out, they are among the pictures
    written: Any  # [] rows since the start
    pictures: Any  # see motet.replay.frames; () where stacks are stored as they come
    priorities: Any  # see motet.replay.prioritised; () where all are as likely
    types: Types = field(metadata={"static": True})

    @property
    def rows(self) -> int:
        """C."""
        return jax.tree.leaves(self.items)[0].shape[0]

    @property
    def columns(self) -> int:
        """B."""
        return jax.tree.leaves(self.items)[0].shape[1]

    @property
    def size(self) -> jax.Array:
        """[] rows that are filled."""
        return jnp.minimum(self.written, self.rows)
