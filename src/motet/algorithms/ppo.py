"""Proximal policy optimisation (Schulman et al. 2017), with a clipped surrogate and GAE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from motet.algorithms.actions import EVERY_SPACE
from motet.algorithms.actor_critic import ActorCritic, Params
from motet.algorithms.descent import Learner, clipped, descend, falling, start
from motet.algorithms.returns import gae
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.batch import batch_moments
from motet.flow.spaces import Space
from motet.flow.trace import Flow
from motet.flow.values import Rollout


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    observation: Any  # [T, B, ...], or [N, ...] in a minibatch, as all of these
    action: Any
    log_prob: jax.Array
    value: jax.Array
    advantage: jax.Array
    target: jax.Array


@dataclass(frozen=True, kw_only=True)
class PPO(Algorithm):
    """Proximal policy optimisation, for actions of every space."""

    max_lag: ClassVar[int | None] = 4
    action_spaces: ClassVar[tuple[type[Space], ...]] = EVERY_SPACE

    num_envs: int = option(64, 1)
    """Environments that act side by side."""
    num_steps: int = option(64, 1)
    """Environment steps per rollout."""
    update_epochs: int = option(4, 1)
    """Passes over each rollout."""
    num_minibatches: int = option(8, 1)
    """Minibatches in a pass."""
    learning_rate: float = option(2e-3, above=0)
    """Step size of Adam."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    gae_lambda: float = option(0.95, 0, 1)
    """How far advantages look ahead: 0 one step, 1 to the episode's end."""
    clip: float = option(0.2, above=0)
    """How far the new policy's probability ratio may go from 1."""
    value_clip: float | None = option(None, above=0)
    """How far the new value may go from the old one in its loss; None: any distance."""
    value_weight: float = option(0.5, 0)
    """Weight of the value loss."""
    entropy_weight: float = option(0.01, 0)
    """Weight of the entropy bonus."""
    max_gradient_norm: float | None = option(0.5, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    normalize_advantage: bool = True
    """Shift and scale each minibatch's advantages to mean 0 and variance 1."""
    hidden: tuple[int, ...] = option((64, 64), 1)
    """Widths of the hidden layers, of policy and value alike. After convolutions there are none, unless other numbers
    join the images."""
    activation: Literal["tanh", "relu"] = option("tanh", choices=("tanh", "relu"))
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on."""

    @cached_property
    def networks(self) -> ActorCritic:
        spec = self.spec
        return ActorCritic.make(spec.observation_space, spec.action_space, self.hidden, self.activation, self.torso)

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        updates = self.spec.iterations * self.update_epochs * self.num_minibatches
        rate = falling(self.learning_rate, updates, self.anneal)
        return optax.chain(clipped(self.max_gradient_norm), optax.adam(rate, eps=1e-5))

    def init(self, key: jax.Array) -> Learner:
        return start(self.optimiser, self.networks.init(key))

    def act(self, policy: Params, memory: Any, observation: Any, key: jax.Array) -> Decision:
        distribution, value = self.networks.policy_and_value(policy, observation)
        action = distribution.sample(key)
        return Decision(action, extras=(distribution.log_prob(action), value))

    def exploit(self, policy: Params, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.networks.policy(policy, observation).mode())

    def targets(self, params: Params, rollout: Rollout) -> Batch:
        log_prob, value = rollout.extras
        next_value = self.next_value(params, rollout, value)
        advantage = gae(
            rollout.reward, value, next_value, rollout.terminated, rollout.truncated, self.discount, self.gae_lambda
        )
        return Batch(rollout.observation, rollout.action, log_prob, value, advantage, advantage + value)

    def next_value(self, params: Params, rollout: Rollout, value: jax.Array) -> jax.Array:
        """The values of the true next observations: known from acting, but for the last and for cut-off episodes."""
        last = self.networks.value(params, jax.tree.map(lambda leaf: leaf[-1], rollout.next_observation))
        known = jnp.concatenate([value[1:], last[None]])

        def look(step: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
            truncated, observation, otherwise = step
            return jnp.where(truncated, self.networks.value(params, observation), otherwise)

        def one_step(step: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
            # Most steps cut off no episode: then there is nothing to look at.
            return jax.lax.cond(jnp.any(step[0]), look, lambda now: now[2], step)

        return jax.lax.map(one_step, (rollout.truncated, rollout.next_observation, known))

    def gradient(self, params: Params, batch: Batch) -> tuple[Params, dict[str, jax.Array]]:
        advantage = batch.advantage
        if self.normalize_advantage:
            mean, variance = batch_moments(advantage)
            advantage = (advantage - mean) / (jnp.sqrt(variance) + 1e-8)
        return jax.grad(self.loss, has_aux=True)(params, batch, advantage)

    def loss(self, params: Params, batch: Batch, advantage: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        distribution, value = self.networks.policy_and_value(params, batch.observation)
        log_ratio = distribution.log_prob(batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        value_loss = self.value_loss(value, batch)
        entropy = jnp.mean(distribution.entropy())
        total = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        metrics = {
            "loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": jnp.mean(ratio - 1 - log_ratio),
        }
        return total, metrics

    def value_loss(self, value: jax.Array, batch: Batch) -> jax.Array:
        error = jnp.square(value - batch.target)
        if self.value_clip is not None:
            near = batch.value + jnp.clip(value - batch.value, -self.value_clip, self.value_clip)
            error = jnp.maximum(error, jnp.square(near - batch.target))
        return 0.5 * jnp.mean(error)

    def apply(self, state: Learner, gradients: Params) -> Learner:
        return descend(self.optimiser, state, gradients)

    def loop(self, flow: Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        batch = flow.call(self.targets, rollout)
        with flow.minibatches(batch, epochs=self.update_epochs, count=self.num_minibatches) as minibatch:
            gradients, metrics = flow.call(self.gradient, minibatch)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
