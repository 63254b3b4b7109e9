"""IMPALA (Espeholt et al. 2018): an actor-critic whose actors may lag, put right by V-trace."""

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
from motet.algorithms.returns import real, vtrace
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.loops import Flow
from motet.flow.spaces import Space
from motet.flow.values import Rollout


@dataclass(frozen=True, kw_only=True)
class IMPALA(Algorithm):
    """Actor-critic that learns from the rollouts of older policies, for discrete and continuous actions."""

    max_lag: ClassVar[int | None] = None
    action_spaces: ClassVar[tuple[type[Space], ...]] = EVERY_SPACE

    num_envs: int = option(16, 1)
    """Environments that act side by side."""
    num_steps: int = option(16, 1)
    """Environment steps per rollout."""
    learning_rate: Rate = option(2e-3, above=0, code=RATE)
    """Step size of RMSProp. A number, or a schedule of optax or its name."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    trace: float = option(0.95, 0, 1)
    """How far targets look ahead: 0 one step, 1 to the rollout's end."""
    rho_clip: float = option(1.0, above=0)
    """The most that one step counts, however much likelier its action has become."""
    c_clip: float = option(1.0, above=0)
    """The most that one step passes back of what came after it."""
    value_weight: float = option(0.5, 0)
    """Weight of the value loss."""
    entropy_weight: float = option(0.01, 0)
    """Weight of the entropy bonus."""
    max_gradient_norm: float | None = option(0.5, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    hidden: tuple[int, ...] = option((64, 64), 1)
    """Widths of the hidden layers, of policy and value alike."""
    activation: Activation = option("tanh", choices=activations.NAMES)
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: nature (a small convolutional network), impala (a deep one), or mlp, which takes them as
    flat vectors. auto: nature for uint8 images of at least 36 x 36 pixels, mlp for the rest. none: networks of your
    own get observations as they are."""
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

    def act(self, policy: Params, memory: Any, observation: jax.Array, key: jax.Array) -> Decision:
        distribution = self.networks.policy(policy, observation)
        action = distribution.sample(key)
        return Decision(action, extras=distribution.log_prob(action))

    def exploit(self, policy: Params, memory: Any, observation: jax.Array, key: jax.Array) -> Decision:
        return Decision(self.networks.policy(policy, observation).mode())

    def gradient(self, params: Params, rollout: Rollout) -> tuple[Params, dict[str, jax.Array]]:
        return jax.grad(self.loss, has_aux=True)(params, rollout)

    def loss(self, params: Params, rollout: Rollout) -> tuple[jax.Array, dict[str, jax.Array]]:
        distribution, value = self.networks.policy_and_value(params, rollout.observation)
        log_prob = distribution.log_prob(rollout.action)
        log_ratio = log_prob - rollout.extras
        target, advantage = jax.lax.stop_gradient(self.targets(params, rollout, log_ratio, value))
        policy_loss = -jnp.mean(log_prob * advantage)
        value_loss = 0.5 * jnp.mean(real(jnp.square(value - target), rollout.valid))
        entropy = jnp.mean(real(distribution.entropy(), rollout.valid))
        total = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        metrics = {
            "loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": jnp.mean(jnp.exp(log_ratio) - 1 - log_ratio),
        }
        return total, metrics

    def targets(
        self, params: Params, rollout: Rollout, log_ratio: jax.Array, value: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        next_value = self.networks.value(params, rollout.next_observation)
        ends = (rollout.terminated, rollout.truncated)
        clips = (self.rho_clip, self.c_clip)
        weights = (self.discount, self.trace, *clips)
        return vtrace(log_ratio, rollout.reward, value, next_value, *ends, *weights, rollout.valid)

    def apply(self, state: Learner, gradients: Params) -> Learner:
        return descend(self.optimiser, state, gradients)

    def loop(self, flow: Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        gradients, metrics = flow.call(self.gradient, rollout)
        flow.apply(self.apply, gradients)
        flow.report(metrics)
