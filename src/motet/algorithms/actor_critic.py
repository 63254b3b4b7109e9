"""The two networks that policy-gradient algorithms share: one that acts, one that judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from motet.algorithms.actions import distribution, first_log_std, width
from motet.algorithms.distributions import Distribution
from motet.algorithms.networks import MLP, Network
from motet.flow.spaces import Space


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of both networks."""

    actor: Any
    critic: Any
    log_std: Any
    """The deviation of continuous actions, the same for all observations; None for discrete ones."""


@dataclass(frozen=True)
class ActorCritic:
    """Separate networks for the policy and the value."""

    actor: Network
    critic: Network
    actions: Space

    @staticmethod
    def make(observations: Space, actions: Space, hidden: Sequence[int], activation: str) -> ActorCritic:
        return ActorCritic(
            Network(MLP(tuple(hidden), width(actions), activation, scale=0.01), observations),
            Network(MLP(tuple(hidden), 1, activation, scale=1.0), observations),
            actions,
        )

    def init(self, key: jax.Array) -> Params:
        key_actor, key_critic = jax.random.split(key)
        return Params(self.actor.init(key_actor), self.critic.init(key_critic), first_log_std(self.actions))

    def policy(self, params: Params, observation: Any) -> Distribution:
        return distribution(self.actions, self.actor(params.actor, observation), params.log_std)

    def value(self, params: Params, observation: Any) -> jax.Array:
        return self.critic(params.critic, observation)[..., 0]
