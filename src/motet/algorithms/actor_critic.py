"""The two networks that policy-gradient algorithms share: one that acts, one that judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from motet.algorithms.distributions import Categorical, DiagonalNormal, Distribution
from motet.algorithms.networks import MLP, Network
from motet.errors import BadAlgorithm
from motet.flow.spaces import Box, Discrete, Space


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of both networks."""

    actor: Any
    critic: Any
    log_std: jax.Array | None
    """The deviation of continuous actions, the same for all observations; None for discrete ones."""


@dataclass(frozen=True)
class ActorCritic:
    """Separate networks for the policy and the value."""

    actor: Network
    critic: Network
    actions: Space

    @staticmethod
    def make(observations: Space, actions: Space, hidden: Sequence[int], activation: str) -> ActorCritic:
        if isinstance(actions, Box) and len(actions.shape) != 1:
            raise BadAlgorithm(f"Continuous actions must be vectors; this environment takes {actions}. Flatten them.")
        outputs = actions.n if isinstance(actions, Discrete) else actions.shape[0]
        return ActorCritic(
            Network(MLP(tuple(hidden), outputs, activation, scale=0.01), observations),
            Network(MLP(tuple(hidden), 1, activation, scale=1.0), observations),
            actions,
        )

    def init(self, key: jax.Array) -> Params:
        key_actor, key_critic = jax.random.split(key)
        log_std = jnp.zeros(self.actions.shape) if isinstance(self.actions, Box) else None
        return Params(self.actor.init(key_actor), self.critic.init(key_critic), log_std)

    def policy(self, params: Params, observation: jax.Array) -> Distribution:
        out = self.actor(params.actor, observation)
        return Categorical(out) if params.log_std is None else DiagonalNormal(out, params.log_std)

    def value(self, params: Params, observation: jax.Array) -> jax.Array:
        return self.critic(params.critic, observation)[..., 0]
