"""Networks, in flax. An algorithm sees two pure functions of one observation: init and apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms.activations import ACTIVATIONS
from motet.algorithms.initial import orthogonal
from motet.algorithms.own_networks import NOT_OWN, Own, OwnNetwork
from motet.algorithms.torsos import Torso, TorsoName
from motet.flow.spaces import Space


class MLP(nn.Module):
    """Dense layers with an activation between them."""

    hidden: Sequence[int]
    outputs: int
    activation: str = "tanh"
    scale: float = 1.0
    """Gain of the last layer's orthogonal initialisation."""
    random_biases: bool = False
    """Start with biases other than 0. A ReLU network without biases scales with its input, so where states grow along
    an episode, so do the values that Q-learning takes for granted: it diverges."""

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        float_type = jnp.result_type(float)
        for width in self.hidden:
            bound = features.shape[-1] ** -0.5 if self.random_biases else 0.0
            layer = nn.Dense(
                width,
                kernel_init=orthogonal(self, np.sqrt(2)),
                bias_init=partial(_uniform, bound) if bound else nn.initializers.zeros,
                param_dtype=float_type,
            )
            features = ACTIVATIONS[self.activation](layer(features))
        last = nn.Dense(
            self.outputs,
            kernel_init=orthogonal(self, self.scale),
            param_dtype=float_type,
            dot_general=_by_columns,
        )
        return last(features)


NARROW = 4
"""Columns up to which a product is taken one by one."""


def _by_columns(left: jax.Array, right: jax.Array, dimension_numbers: Any, **options: Any) -> jax.Array:
    """`dot_general` with a matrix, column by column if it has few of them. The gradient of such a matrix, two columns
    for a choice of two actions, takes XLA ten times as long on CPUs as those of its columns: 8% of an iteration of PPO
    on CartPole."""

    def at_once(left: jax.Array, right: jax.Array) -> jax.Array:
        return jax.lax.dot_general(left, right, dimension_numbers, **options)

    def one_by_one(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.concatenate([at_once(left, column) for column in jnp.split(right, right.shape[-1], -1)], -1)

    if not 1 < right.shape[-1] <= NARROW:
        return at_once(left, right)
    return jax.lax.platform_dependent(left, right, cpu=one_by_one, default=at_once)


def _uniform(bound: float, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jax.random.uniform(key, shape, dtype, -bound, bound)


@dataclass(frozen=True)
class Network:
    """A module on top of a torso. Where the torso has nothing to learn, the parameters are the module's alone."""

    module: nn.Module | OwnNetwork
    space: Space
    torso: TorsoName = "mlp"

    def init(self, key: jax.Array) -> Any:
        torso = self._torso
        if torso.module is None:
            return self.module.init(key, torso((), torso.view.blank))
        key_torso, key_module = jax.random.split(key)
        below = torso.init(key_torso)
        return {"torso": below, "module": self.module.init(key_module, torso(below, torso.view.blank))}

    def __call__(self, params: Any, observation: Any) -> jax.Array:
        """[..., *observation] -> [..., outputs]"""
        if self._torso.module is None:
            return run(self.module, params, self._torso((), observation))
        return run(self.module, params["module"], self._torso(params["torso"], observation))

    @cached_property
    def _torso(self) -> Torso:
        return Torso.make(self.space, self.torso)


def make_values(
    observations: Space,
    outputs: int,
    hidden: tuple[int, ...],
    activation: str,
    torso: TorsoName,
    own: Own = NOT_OWN,
) -> Network:
    """A network from observations to what each of a few actions is worth."""
    below = Torso.make(observations, torso)
    usual = MLP(below.layers(hidden), outputs, activation, random_biases=True)
    return Network(own.network("q_network", outputs, usual, below), observations, torso)


def run(module: nn.Module | OwnNetwork, params: Any, *inputs: Any) -> jax.Array:
    """What a module without side effects gives."""
    out = module.apply(params, *inputs)
    assert isinstance(out, jax.Array)
    return out
