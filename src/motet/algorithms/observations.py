"""How networks read observations: everything as one vector of floats, or the images apart from the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, parts


@dataclass(frozen=True)
class Observed:
    """What a network sees of the observations of `space`.

    Discrete parts become indicators and arrays their flattened numbers; `uint8` images are brought to 0..1. All
    methods take `[..., *observation]` with any leading axes, the same for every part.
    """

    space: Space
    pictures: tuple[int, ...] = ()
    """Which parts (see `motet.flow.spaces.parts`) are kept as images; the others are numbers."""

    def numbers(self, observation: Any) -> jax.Array:
        """All parts but the pictures, as vectors side by side -> [..., n]; n may be 0."""
        rest = [_numbers(part, leaf) for part, leaf, picture in self._leaves(observation) if not picture]
        if not rest:
            part, leaf, _ = self._leaves(observation)[0]
            return jnp.zeros((*_leading(part, leaf), 0))
        return rest[0] if len(rest) == 1 else jnp.concatenate(rest, -1)

    def images(self, observation: Any) -> tuple[jax.Array, ...]:
        """The pictures, each [..., H, W, C]."""
        return tuple(_image(part, leaf) for part, leaf, picture in self._leaves(observation) if picture)

    @property
    def blank(self) -> Any:
        """An observation of zeros."""
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.space.aval)

    @property
    def mixed(self) -> bool:
        """Whether there are other numbers beside the pictures."""
        return 0 < len(self.pictures) < len(parts(self.space))

    def _leaves(self, observation: Any) -> list[tuple[Space, jax.Array, bool]]:
        each = zip(parts(self.space), jax.tree.leaves(observation), strict=True)
        return [(part, leaf, index in self.pictures) for index, (part, leaf) in enumerate(each)]


def find_pictures(space: Space, smallest: int, any_dtype: bool) -> tuple[int, ...]:
    """Which parts of `space` are images of at least `smallest` x `smallest` pixels.

    An image is a `uint8` box of three dimensions, or of two (one channel). With `any_dtype`, every box of three
    dimensions is one.
    """

    def picture(part: Space) -> bool:
        if not isinstance(part, Box) or not (_is_bytes(part) or (any_dtype and len(part.shape) == 3)):
            return False
        return min(_image_shape(part)[:2]) >= smallest

    return tuple(index for index, part in enumerate(parts(space)) if picture(part))


def _numbers(part: Space, leaf: jax.Array) -> jax.Array:
    float_type, leading = jnp.result_type(float), _leading(part, leaf)
    if isinstance(part, Discrete):
        return jax.nn.one_hot(leaf, part.n, dtype=float_type)
    if isinstance(part, MultiDiscrete):
        # One comparison for all of them: an indicator for each would be a program as long as the vector.
        owner = np.repeat(np.arange(len(part.nvec)), part.nvec)
        choice = np.concatenate([np.arange(n) for n in part.nvec])
        return (leaf[..., owner] == choice.reshape((1,) * len(leading) + (-1,))).astype(float_type)
    if isinstance(part, (Box, MultiBinary)):
        return _scaled(part, leaf).reshape(*leading, -1)
    raise AssertionError(f"{part} has parts of its own")


def _image(part: Space, leaf: jax.Array) -> jax.Array:
    assert isinstance(part, Box)
    image = _scaled(part, leaf)
    if len(part.shape) == 2:
        return image[..., None]
    return jnp.moveaxis(image, -3, -1) if _channels_first(part) else image


def _scaled(part: Box | MultiBinary, leaf: jax.Array) -> jax.Array:
    values = leaf.astype(jnp.result_type(float))
    # One that comes in floats was brought to scale before.
    return values / _brightest(part) if isinstance(part, Box) and leaf.dtype == np.uint8 and _is_bytes(part) else values


def _brightest(part: Box) -> float:
    """The upper bound of an image's values: 255 unless its space says less."""
    return max(float(np.max(part.bounds[1])), 1.0)


def _is_bytes(part: Box) -> bool:
    return part.aval.dtype == np.uint8 and len(part.shape) in (2, 3)


def _channels_first(part: Box) -> bool:
    """Whether [C, H, W] is meant: there are fewer channels than pixels in a row or in a column."""
    return len(part.shape) == 3 and part.shape[0] < min(part.shape[1:])


def _image_shape(part: Box) -> tuple[int, ...]:
    """Height and width first."""
    return part.shape[1:] if _channels_first(part) else part.shape[:2]


def _leading(part: Space, leaf: jax.Array) -> tuple[int, ...]:
    return leaf.shape[: leaf.ndim - len(part.aval.shape)]
