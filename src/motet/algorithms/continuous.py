"""What algorithms share that learn the value of continuous actions: their scale, and who chooses and judges them.

Inside these algorithms an action is a vector of numbers from -1 to 1, whatever the bounds and the shape of its Box, so
that noise and networks mean the same for every environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from motet.algorithms.networks import MLP, Network, run
from motet.algorithms.own_networks import NOT_OWN, Own, OwnNetwork
from motet.algorithms.torsos import Torso, TorsoName
from motet.errors import BadAlgorithm
from motet.flow.spaces import Box, Space


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Acting:
    """What acting needs: the network that chooses, and whether to ignore it."""

    actor: Any
    random: jax.Array  # [] True until something was learned: act evenly at random


@dataclass(frozen=True)
class Scale:
    """From actions of a bounded Box to vectors of numbers from -1 to 1, and back."""

    space: Box

    @staticmethod
    def of(space: Space) -> Scale:
        assert isinstance(space, Box)
        low, high = space.bounds
        if not jnp.issubdtype(space.aval.dtype, jnp.floating):
            raise BadAlgorithm(
                f"Actions are chosen as real numbers, but this environment takes {space}. "
                "Let it take a Box of floats that it rounds, or choose an algorithm for discrete actions."
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise BadAlgorithm(
                f"Actions are brought to the bounds of their Box, which must be finite and apart; this environment "
                f"takes {space} from {np.min(low):g} to {np.max(high):g}. Give its action space bounds, or choose an "
                "algorithm that needs none, such as ppo."
            )
        return Scale(space)

    @property
    def size(self) -> int:
        """Numbers in an action."""
        return math.prod(self.space.shape)

    def to_box(self, unit: jax.Array) -> jax.Array:
        """[..., n] -> [..., *shape]"""
        low, high = (jnp.broadcast_to(bound.reshape(-1), unit.shape) for bound in self.space.bounds)
        action = jnp.clip(low + 0.5 * (unit + 1) * (high - low), low, high)  # rounding may leave the bounds
        return action.reshape(*unit.shape[:-1], *self.space.shape).astype(self.space.aval.dtype)

    def to_unit(self, action: jax.Array) -> jax.Array:
        """[..., *shape] -> [..., n]"""
        leading = action.shape[: action.ndim - len(self.space.shape)]
        flat = action.reshape(*leading, -1).astype(jnp.result_type(float))
        low, high = (jnp.broadcast_to(bound.reshape(-1), flat.shape) for bound in self.space.bounds)
        return 2 * (flat - low) / (high - low) - 1


def make_actor(
    observations: Space,
    outputs: int,
    hidden: tuple[int, ...],
    activation: str,
    torso: TorsoName,
    own: Own = NOT_OWN,
) -> Network:
    """A network from observations to what choosing an action takes; at first it leans to no action."""
    below = Torso.make(observations, torso)
    usual = MLP(below.layers(hidden), outputs, activation, scale=0.01, random_biases=True)
    return Network(own.network("policy_network", outputs, usual, below), observations, torso)


@dataclass(frozen=True)
class Critic:
    """The value of an action: a network on what a torso makes of the observation, beside the action."""

    module: nn.Module | OwnNetwork
    torso: Torso
    size: int
    """Numbers in an action."""

    @staticmethod
    def make(
        observations: Space,
        size: int,
        hidden: tuple[int, ...],
        activation: str,
        torso: TorsoName,
        own: Own = NOT_OWN,
    ) -> Critic:
        below, usual = Torso.make(observations, torso), MLP(hidden, 1, activation, random_biases=True)
        return Critic(own.network("q_network", 1, usual, below), below, size)

    def init(self, key: jax.Array) -> Any:
        key_torso, key_module = jax.random.split(key)
        torso = self.torso.init(key_torso)
        features = self.torso(torso, self.torso.view.blank)
        inputs = self._beside(features, jnp.zeros(self.size))
        return {"torso": torso, "module": self.module.init(key_module, *inputs)}

    def __call__(self, params: Any, observation: Any, action: jax.Array) -> jax.Array:
        """[..., *observation], [..., n] -> [...]"""
        features = self.torso(params["torso"], observation)
        return run(self.module, params["module"], *self._beside(features, action))[..., 0]

    def _beside(self, features: Any, action: jax.Array) -> tuple[Any, ...]:
        """What the network gets: one vector of both, or the observation as it is and the action."""
        return (features, action) if self.torso.raw else (jnp.concatenate([features, action], -1),)


def follow(target: Any, params: Any, rate: float) -> Any:
    """Polyak's average: the target, moved by a share of the way to the parameters."""
    return optax.incremental_update(params, target, rate)


def explore(unit: jax.Array, noise: float, random: jax.Array, key: jax.Array) -> jax.Array:
    """The action [n] with normal noise, or one drawn evenly where `random`."""
    key_noise, key_random = jax.random.split(key)
    noisy = jnp.clip(unit + noise * jax.random.normal(key_noise, unit.shape, unit.dtype), -1, 1)
    return jnp.where(random, jax.random.uniform(key_random, unit.shape, unit.dtype, -1, 1), noisy)
