"""Advantage actor-critic (Mnih et al. 2016, its synchronous form): one gradient step for each short rollout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from motet.algorithms import activations
from motet.algorithms.actions import EVERY_SPACE
from motet.algorithms.activations import Activation
from motet.algorithms.actor_critic import ActorCritic, Params
from motet.algorithms.descent import (
    OPTIMIZER,
    RATE,
    Learner,
    OptimizerOption,
    Rate,
    chosen,
    clipped,
    descend,
    falling,
    start,
)
from motet.algorithms.own_networks import NETWORK, NetworkOption, Own
from motet.algorithms.returns import gae, real
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.loops import Flow
from motet.flow.spaces import Space
from motet.flow.values import Rollout


@dataclass(frozen=True, kw_only=True)
class A2C(Algorithm):
    """Advantage actor-critic, for actions of every space."""

    max_lag: ClassVar[int | None] = 0
    action_spaces: ClassVar[tuple[type[Space], ...]] = EVERY_SPACE

    num_envs: int = option(16, 1)
    """Environments that act side by side."""
    num_steps: int = option(8, 1)
    """Environment steps per rollout."""
    learning_rate: Rate = option(2e-3, above=0, code=RATE)
    """Step size of RMSProp. A number, or a schedule of optax or its name."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    gae_lambda: float = option(0.95, 0, 1)
    """How far advantages look ahead: 0 one step, 1 to the rollout's end."""
    value_weight: float = option(0.5, 0)
    """Weight of the value loss."""
    entropy_weight: float = option(0.01, 0)
    """Weight of the entropy bonus."""
    max_gradient_norm: float | None = option(0.5, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    hidden: tuple[int, ...] = option((64, 64), 1)
    """Widths of the hidden layers, of policy and value alike. After convolutions there are none, unless other numbers
    join the images."""
    activation: Activation = option("tanh", choices=activations.NAMES)
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on.
    none: networks of your own get observations as they are."""
    policy_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features to what an action is drawn from: a flax module, a class or function
    that makes one, or its name, as my_nets.py:Tower. None: the hidden layers."""
    value_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features to one value."""
    optimizer: OptimizerOption = option(None, code=OPTIMIZER)
    """An optimiser of optax in place of RMSProp and the clipping: one, a function of the spec or the number of
    updates that makes one, or its name."""

    @cached_property
    def networks(self) -> ActorCritic:
        spaces = (self.spec.observation_space, self.spec.action_space)
        return ActorCritic.make(*spaces, self.hidden, self.activation, self.torso, own=Own(self))

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        rate = falling(self.learning_rate, self.spec.iterations, self.anneal)
        usual = optax.chain(clipped(self.max_gradient_norm), optax.rmsprop(rate, decay=0.99, eps=1e-5))
        return chosen(self.optimizer, usual, self.spec, self.spec.iterations)

    def init(self, key: jax.Array) -> Learner:
        return start(self.optimiser, self.networks.init(key))

    def act(self, policy: Params, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.networks.policy(policy, observation).sample(key))

    def exploit(self, policy: Params, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.networks.policy(policy, observation).mode())

    def gradient(self, params: Params, rollout: Rollout) -> tuple[Params, dict[str, jax.Array]]:
        return jax.grad(self.loss, has_aux=True)(params, rollout)

    def loss(self, params: Params, rollout: Rollout) -> tuple[jax.Array, dict[str, jax.Array]]:
        distribution, value = self.networks.policy_and_value(params, rollout.observation)
        next_value = self.networks.value(params, rollout.next_observation)
        ends = (rollout.terminated, rollout.truncated)
        advantage = gae(rollout.reward, value, next_value, *ends, self.discount, self.gae_lambda, rollout.valid)
        advantage, target = jax.lax.stop_gradient((advantage, advantage + value))
        policy_loss = -jnp.mean(distribution.log_prob(rollout.action) * advantage)
        value_loss = 0.5 * jnp.mean(real(jnp.square(value - target), rollout.valid))
        entropy = jnp.mean(real(distribution.entropy(), rollout.valid))
        total = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        return total, {"loss": total, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

    def apply(self, state: Learner, gradients: Params) -> Learner:
        return descend(self.optimiser, state, gradients)

    def loop(self, flow: Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        gradients, metrics = flow.call(self.gradient, rollout)
        flow.apply(self.apply, gradients)
        flow.report(metrics)
