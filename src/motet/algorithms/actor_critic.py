"""The two networks that policy-gradient algorithms share: one that acts, one that judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import flax.linen as nn
import jax

from motet.algorithms import actions as action_heads
from motet.algorithms.distributions import Distribution
from motet.algorithms.networks import MLP, run
from motet.algorithms.torsos import Torso, TorsoName
from motet.flow.spaces import Space


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of both networks."""

    actor: Any
    critic: Any
    log_std: Any
    """The deviation of continuous actions, the same for all observations; None for discrete ones."""
    torso: Any = ()
    """What looks at images, for both; () where nothing does."""


@dataclass(frozen=True)
class ActorCritic:
    """Networks for the policy and the value on one torso.

    What looks at images is shared, and a layer on top of it for either is all there is. Without images there is
    nothing to share: the torso only reads observations, and the two networks are separate.
    """

    actor: nn.Module
    critic: nn.Module
    actions: Space
    torso: Torso

    @classmethod
    def make(
        cls,
        observations: Space,
        actions: Space,
        hidden: Sequence[int],
        activation: str,
        torso: TorsoName = "auto",
    ) -> Self:
        below = Torso.make(observations, torso)
        layers, outputs = below.layers(tuple(hidden)), action_heads.width(actions)
        actor, critic = MLP(layers, outputs, activation, scale=0.01), MLP(layers, 1, activation, scale=1.0)
        return cls(actor, critic, actions, below)

    def init(self, key: jax.Array) -> Params:
        key_actor, key_critic, key_torso = jax.random.split(key, 3)
        torso = self.torso.init(key_torso)
        features = self.torso(torso, self.torso.view.blank)
        actor, critic = self.actor.init(key_actor, features), self.critic.init(key_critic, features)
        return Params(actor, critic, action_heads.first_log_std(self.actions), torso)

    def policy(self, params: Params, observation: Any) -> Distribution:
        """[..., *observation] -> a distribution over [..., *action]"""
        return self.choose(params, self.torso(params.torso, observation))

    def value(self, params: Params, observation: Any) -> jax.Array:
        """[..., *observation] -> [...]"""
        return self.judge(params, self.torso(params.torso, observation))

    def policy_and_value(self, params: Params, observation: Any) -> tuple[Distribution, jax.Array]:
        """Both, from features that are computed once."""
        features = self.torso(params.torso, observation)
        return self.choose(params, features), self.judge(params, features)

    def choose(self, params: Params, features: jax.Array) -> Distribution:
        """[..., features] -> a distribution over [..., *action]"""
        return action_heads.distribution(self.actions, run(self.actor, params.actor, features), params.log_std)

    def judge(self, params: Params, features: jax.Array) -> jax.Array:
        """[..., features] -> [...]"""
        return run(self.critic, params.critic, features)[..., 0]
