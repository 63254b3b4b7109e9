"""How the pieces of a result become the result of the whole batch: by a collective, or when messages are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Combine = Literal["mean", "sum", "max", "min", "any", "all"]

ACROSS: dict[str, Callable[[jax.Array, str], jax.Array]] = {
    "mean": jax.lax.pmean,
    "sum": jax.lax.psum,
    "max": jax.lax.pmax,
    "min": jax.lax.pmin,
    "any": lambda leaf, axis: jax.lax.psum(leaf.astype(jnp.int32), axis) > 0,
    "all": lambda leaf, axis: jax.lax.psum((~leaf).astype(jnp.int32), axis) == 0,
}
"""What combines the pieces of a leaf over a mesh axis."""


def across(leaves: Sequence[Any], hows: Sequence[Combine | None], axis: str) -> list[Any]:
    """Combine the leaves of a result over a mesh axis, those without a way staying as they are.

    Leaves that combine in the same way go together, as one vector: to meet takes longer than to add up a few numbers.
    """
    done = list(leaves)
    groups: dict[tuple[str, Any], list[int]] = {}
    for place, (leaf, how) in enumerate(zip(leaves, hows, strict=True)):
        if how is not None:
            groups.setdefault((how, jnp.result_type(leaf)), []).append(place)
    for (how, _), places in groups.items():
        if len(places) == 1:
            done[places[0]] = ACROSS[how](leaves[places[0]], axis)
            continue
        vector = ACROSS[how](jnp.concatenate([jnp.ravel(leaves[place]) for place in places]), axis)
        ends = np.cumsum([jnp.size(leaves[place]) for place in places])
        for place, part in zip(places, jnp.split(vector, ends[:-1]), strict=True):
            done[place] = part.reshape(jnp.shape(leaves[place]))
    return done


FOLD = {"mean": "add", "sum": "add", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}


def join(how: Combine, pieces: Sequence[Any]) -> Any:
    """The leaf of the whole batch from those of its pieces, in order."""
    library = np if all(isinstance(piece, np.ndarray | np.generic) for piece in pieces) else jnp
    total = reduce(getattr(library, FOLD[how]), pieces)
    return total / len(pieces) if how == "mean" else total
