"""Convolutional networks for images, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms.convolution import Convolution
from motet.algorithms.initial import orthogonal
from motet.algorithms.observations import Observed, find_pictures
from motet.errors import BadAlgorithm
from motet.flow.spaces import Space

TorsoName = Literal["auto", "mlp", "nature", "impala", "none"]
TORSOS: tuple[str, ...] = get_args(TorsoName)
"""`nature` and `impala` look at images; `mlp` takes them as flat vectors of numbers. `auto` is `nature` for `uint8`
images of at least 36 x 36 pixels, which its convolutions need, and `mlp` for everything else. `none` hands
observations on as they are, to networks of somebody's own."""

SMALLEST = {"nature": 36, "impala": 1}
"""The fewest pixels in a row or a column that a torso can look at."""


class Nature(nn.Module):
    """The network of Mnih et al. 2015 up to its last layer: [..., H, W, C] -> [..., 512]."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        first, float_type = orthogonal(self, np.sqrt(2)), jnp.result_type(float)
        for channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            image = nn.relu(Convolution(channels, size, stride, "VALID", first)(image))
        return nn.relu(nn.Dense(512, kernel_init=first, param_dtype=float_type)(_flat(image)))


class Residual(nn.Module):
    """The deep network of Espeholt et al. 2018 up to its core: [..., H, W, C] -> [..., 256]."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        for channels in (16, 32, 32):
            image = Convolution(channels, 3)(image)
            image = nn.max_pool(image, (3, 3), (2, 2), padding="SAME")
            for _ in range(2):
                inner = Convolution(channels, 3)(nn.relu(image))
                image = image + Convolution(channels, 3)(nn.relu(inner))
        # The default initialisation: an orthogonal one of gain sqrt(2) would double the variance in every block.
        return nn.relu(nn.Dense(256, param_dtype=jnp.result_type(float))(_flat(nn.relu(image))))


def _flat(image: jax.Array) -> jax.Array:
    return image.reshape(*image.shape[:-3], -1)


class Convolutions(nn.Module):
    """A convolutional network for each image; what they give, beside all other numbers."""

    kind: str

    @nn.compact
    def __call__(self, images: tuple[jax.Array, ...], numbers: jax.Array) -> jax.Array:
        """[..., H, W, C] each, [..., n] -> [..., features]"""
        network = {"nature": Nature, "impala": Residual}[self.kind]
        return jnp.concatenate([*(network()(image) for image in images), numbers], -1)


@dataclass(frozen=True)
class Torso:
    """What turns observations into the features that everything else is computed from."""

    view: Observed
    module: Convolutions | None
    """What looks at the pictures; None: there are none, and nothing to learn."""
    raw: bool = False
    """Whether observations are handed on as they are."""

    @staticmethod
    def make(space: Space, name: TorsoName) -> Torso:
        if name in ("mlp", "none"):
            return Torso(Observed(space), None, raw=name == "none")
        kind = "nature" if name == "auto" else name
        pictures = find_pictures(space, SMALLEST[kind], any_dtype=name != "auto")
        if not pictures and name != "auto":
            size = f" of at least {SMALLEST[kind]} x {SMALLEST[kind]} pixels" if SMALLEST[kind] > 1 else ""
            raise BadAlgorithm(
                f"The torso {name!r} looks at images{size}, but this environment shows {space}. "
                "Choose the torso 'auto' or 'mlp', or let the environment show a box of three dimensions."
            )
        return Torso(Observed(space, pictures), Convolutions(kind) if pictures else None)

    def init(self, key: jax.Array) -> Any:
        """Its parameters; () if it has none."""
        blank = self.view.blank
        return self.module.init(key, self.view.images(blank), self.view.numbers(blank)) if self.module else ()

    def __call__(self, params: Any, observation: Any) -> Any:
        """[..., *observation] -> [..., features]"""
        if self.raw:
            return observation
        numbers = self.view.numbers(observation)
        if self.module is None:
            return numbers
        out = self.module.apply(params, self.view.images(observation), numbers)
        assert isinstance(out, jax.Array)
        return out

    @property
    def dimensions(self) -> int:
        """Dimensions of the first array that one observation becomes."""
        return len(jax.tree.leaves(self.view.space.aval)[0].shape) if self.raw else 1

    def layers(self, hidden: tuple[int, ...]) -> tuple[int, ...]:
        """The hidden layers that should follow. Images alone need none: their last layer is in the torso already."""
        return hidden if self.module is None or self.view.mixed else ()
