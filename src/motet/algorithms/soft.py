"""Stochastic policies and their two critics, for continuous and for discrete actions.

Both kinds answer the same questions, so that soft actor-critic need not know which it has. A policy is what a network
gives for an observation: `outputs` numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms.continuous import Critic, Scale
from motet.algorithms.networks import Network, make_values
from motet.algorithms.own_networks import NOT_OWN, Own
from motet.algorithms.torsos import TorsoName
from motet.flow.spaces import Box, Discrete, Space

LOG_STD = (-20.0, 2.0)
"""The bounds of a policy's log deviation."""


class ActionMethods(Protocol):
    """What all kinds of actions offer. `critics` are the parameters of two critics."""

    @property
    def outputs(self) -> int:
        """The size of a policy."""
        ...

    @property
    def usual_entropy(self) -> float:
        """The entropy that a policy should keep, if nobody knows better."""
        ...

    def init_critic(self, key: jax.Array) -> Any: ...

    def draw(self, policy: jax.Array, key: jax.Array) -> jax.Array:
        """An action of the environment's from ONE policy [outputs]."""
        ...

    def best(self, policy: jax.Array) -> jax.Array:
        """The likeliest action of ONE policy [outputs]."""
        ...

    def taken(self, critics: Any, observation: Any, action: jax.Array) -> jax.Array:
        """What each critic thinks of actions that were taken: [N, *observation], [N, *action] -> [2, N]"""
        ...

    def outlook(
        self, policy: jax.Array, critics: Any, observation: Any, keys: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What the lesser critic expects of policies [N, outputs], and their entropy -> [N], [N]"""
        ...


@dataclass(frozen=True)
class Squashed:
    """Normal actions, squashed into their bounds by tanh. Expectations are taken over one action, drawn with `keys`."""

    scale: Scale
    critic: Critic

    @property
    def outputs(self) -> int:
        return 2 * self.scale.size

    @property
    def usual_entropy(self) -> float:
        """That of Haarnoja et al. 2018: minus the number of an action's dimensions."""
        return -float(self.scale.size)

    def init_critic(self, key: jax.Array) -> Any:
        return self.critic.init(key)

    def draw(self, policy: jax.Array, key: jax.Array) -> jax.Array:
        return self.scale.to_box(squashed_sample(policy, key)[0])

    def best(self, policy: jax.Array) -> jax.Array:
        return self.scale.to_box(jnp.tanh(policy[: self.scale.size]))

    def taken(self, critics: Any, observation: Any, action: jax.Array) -> jax.Array:
        return self._values(critics, observation, self.scale.to_unit(action))

    def outlook(
        self, policy: jax.Array, critics: Any, observation: Any, keys: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        action, log_prob = jax.vmap(squashed_sample)(policy, keys)
        return jnp.min(self._values(critics, observation, action), 0), -log_prob

    def _values(self, critics: Any, observation: Any, unit: jax.Array) -> jax.Array:
        return jnp.stack([self.critic(each, observation, unit) for each in critics])


def squashed_sample(policy: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One policy [2 n], means and log deviations -> an action from -1 to 1 [n] and its log density []."""
    mean, log_std = jnp.split(policy, 2)
    log_std = jnp.clip(log_std, *LOG_STD)
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    raw = mean + jnp.exp(log_std) * noise
    normal = -0.5 * jnp.square(noise) - log_std - 0.5 * np.log(2 * np.pi)
    # log(1 - tanh(x)^2), in a form that is exact where tanh(x) rounds to 1.
    stretch = 2 * (np.log(2) - raw - jax.nn.softplus(-2 * raw))
    return jnp.tanh(raw), jnp.sum(normal - stretch)


@dataclass(frozen=True)
class Listed:
    """Discrete actions. A critic gives the values of all of them at once, so expectations are exact."""

    space: Discrete
    critic: Network

    @property
    def outputs(self) -> int:
        return self.space.n

    @property
    def usual_entropy(self) -> float:
        """Half of what it can be."""
        return 0.5 * float(np.log(self.space.n))

    def init_critic(self, key: jax.Array) -> Any:
        return self.critic.init(key)

    def draw(self, policy: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, policy).astype(jnp.int32)

    def best(self, policy: jax.Array) -> jax.Array:
        return jnp.argmax(policy).astype(jnp.int32)

    def taken(self, critics: Any, observation: Any, action: jax.Array) -> jax.Array:
        values = self._values(critics, observation)
        return jax.vmap(lambda each: jnp.take_along_axis(each, action[:, None], -1)[:, 0])(values)

    def outlook(
        self, policy: jax.Array, critics: Any, observation: Any, keys: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        log_p = jax.nn.log_softmax(policy)
        p, least = jnp.exp(log_p), jnp.min(self._values(critics, observation), 0)
        return jnp.sum(p * least, -1), -jnp.sum(p * log_p, -1)

    def _values(self, critics: Any, observation: Any) -> jax.Array:
        return jnp.stack([self.critic(each, observation) for each in critics])


def make_choice(
    observations: Space,
    actions: Space,
    hidden: tuple[int, ...],
    activation: str,
    torso: TorsoName,
    own: Own = NOT_OWN,
) -> ActionMethods:
    """The kind of choice that `actions` asks for."""
    if isinstance(actions, Box):
        scale = Scale.of(actions)
        return Squashed(scale, Critic.make(observations, scale.size, hidden, activation, torso, own))
    assert isinstance(actions, Discrete)
    return Listed(actions, make_values(observations, actions.n, hidden, activation, torso, own))
