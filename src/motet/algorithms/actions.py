"""From a network's outputs to a distribution over actions, for every space."""

from __future__ import annotations

import math
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms.distributions import Bernoullis, Categorical, Categoricals, DiagonalNormal, Distribution, Factored
from motet.errors import BadAlgorithm
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

EVERY_SPACE: tuple[type[Space], ...] = get_args(Space)
"""For algorithms whose actions come from here."""


def width(space: Space) -> int:
    """How many outputs of a network an action of `space` takes."""
    match space:
        case Discrete():
            return space.n
        case MultiDiscrete():
            return sum(space.nvec)
        case Dict() | Tuple():
            return sum(map(width, _parts(space).values()))
        case Box() if not jnp.issubdtype(space.aval.dtype, jnp.floating):
            raise BadAlgorithm(
                f"Actions in a Box are drawn as real numbers, but this environment takes {space}. "
                "Let it take Discrete or MultiDiscrete actions, or a Box of floats that it rounds."
            )
        case Box() | MultiBinary():
            return math.prod(space.shape)


def first_log_std(space: Space) -> Any:
    """Log deviations of 0 for the continuous parts of an action, which a network's outputs leave open; else None."""
    match space:
        case Box():
            return jnp.zeros(space.shape)
        case Dict() | Tuple():
            return {name: first_log_std(part) for name, part in _parts(space).items()}
        case _:
            return None


def distribution(space: Space, out: jax.Array, log_std: Any) -> Distribution:
    """Outputs [..., width(space)] and what `first_log_std` began -> a distribution over [..., *action]."""
    leading = out.shape[:-1]
    match space:
        case Discrete():
            return Categorical(out)
        case MultiDiscrete():
            return Categoricals.of(out, space.nvec)
        case MultiBinary():
            return Bernoullis(out.reshape(*leading, *space.shape), len(space.shape))
        case Box():
            dtype = jax.dtypes.canonicalize_dtype(space.aval.dtype).name
            return DiagonalNormal(out.reshape(*leading, *space.shape), log_std, len(space.shape), dtype)
        case Dict() | Tuple():
            named = _parts(space)
            cuts = np.cumsum([width(part) for part in named.values()])[:-1]
            outs = jnp.split(out, cuts, -1)
            made = {
                name: distribution(part, mine, log_std[name])
                for (name, part), mine in zip(named.items(), outs, strict=True)
            }
            return Factored(made if isinstance(space, Dict) else tuple(made.values()))


def _parts(space: Dict | Tuple) -> dict[str, Space]:
    """The spaces directly inside, by name or by number."""
    return dict(space.items) if isinstance(space, Dict) else {str(i): part for i, part in enumerate(space.spaces)}
