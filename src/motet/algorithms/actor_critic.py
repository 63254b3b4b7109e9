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
from motet.algorithms.own_networks import NOT_OWN, Own, OwnNetwork
from motet.algorithms.recurrent import NO_CORE, Core
from motet.algorithms.torsos import Torso, TorsoName
from motet.errors import BadAlgorithm
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
    core: Any = ()
    """What remembers, for both; () where nothing does."""


@dataclass(frozen=True)
class ActorCritic:
    """Networks for the policy and the value on one torso.

    What looks at images is shared, and a layer on top of it for either is all there is. Without images there is
    nothing to share: the torso only reads observations, and the two networks are separate. A recurrent core, if there
    is one, comes between the torso and the two networks and is shared as well.
    """

    actor: nn.Module | OwnNetwork
    critic: nn.Module | OwnNetwork
    actions: Space
    torso: Torso
    core: Core = NO_CORE

    @classmethod
    def make(
        cls,
        observations: Space,
        actions: Space,
        hidden: Sequence[int],
        activation: str,
        torso: TorsoName = "auto",
        core: Core = NO_CORE,
        own: Own = NOT_OWN,
    ) -> Self:
        below = Torso.make(observations, torso)
        if below.raw and core.name != "none":
            raise BadAlgorithm(
                f"The core {core.name!r} remembers features, but the torso 'none' makes none of observations. Choose "
                "another torso, or the core 'none'."
            )
        layers, outputs = below.layers(tuple(hidden)), action_heads.width(actions)
        actor = own.network("policy_network", outputs, MLP(layers, outputs, activation, scale=0.01), below)
        critic = own.network("value_network", 1, MLP(layers, 1, activation, scale=1.0), below)
        return cls(actor, critic, actions, below, core)

    def init(self, key: jax.Array) -> Params:
        key_actor, key_critic, key_torso, key_core = jax.random.split(key, 4)
        torso = self.torso.init(key_torso)
        features = self.torso(torso, self.torso.view.blank)
        core = self.core.init(key_core, features)
        _, features = self.core.step(core, self.core.initial_memory(), features)
        actor, critic = self.actor.init(key_actor, features), self.critic.init(key_critic, features)
        return Params(actor, critic, action_heads.first_log_std(self.actions), torso, core)

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

    # With a memory: one step at a time, or a whole sequence from what was remembered at its start.

    def step(self, params: Params, memory: Any, observation: Any) -> tuple[Any, Distribution, jax.Array]:
        """One step -> what is remembered, the policy and the value."""
        memory, features = self.core.step(params.core, memory, self.torso(params.torso, observation))
        return memory, self.choose(params, features), self.judge(params, features)

    def sequence(
        self, params: Params, memory: Any, observation: Any, first: jax.Array
    ) -> tuple[Distribution, jax.Array]:
        """[T, B, *observation] -> policies and values of every step; memories begin anew where `first` [T, B] is."""
        features = self.core.sequence(params.core, memory, self.torso(params.torso, observation), first)
        return self.choose(params, features), self.judge(params, features)

    def look_ahead(
        self, params: Params, memory: Any, observation: Any, next_observation: Any, first: jax.Array
    ) -> jax.Array:
        """The values of the true next observations [T, B], each with what was remembered when it was made."""
        seen, following = (self.torso(params.torso, each) for each in (observation, next_observation))

        def one_step(memory: Any, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            features, next_features, first = now
            memory, _ = self.core.step(params.core, self.core.renew(memory, first), features)
            return memory, self.core.step(params.core, memory, next_features)[1]

        return self.judge(params, jax.lax.scan(one_step, memory, (seen, following, first))[1])

    def choose(self, params: Params, features: jax.Array) -> Distribution:
        """[..., features] -> a distribution over [..., *action]"""
        return action_heads.distribution(self.actions, run(self.actor, params.actor, features), params.log_std)

    def judge(self, params: Params, features: jax.Array) -> jax.Array:
        """[..., features] -> [...]"""
        return run(self.critic, params.critic, features)[..., 0]
