"""BatchPPO (Hafner et al. 2017): proximal policy optimisation by an adaptive KL penalty, over whole batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motet.algorithms import activations
from motet.algorithms.activations import Activation
from motet.algorithms.actor_critic import ActorCritic, Params
from motet.algorithms.descent import RATE, Rate, start
from motet.algorithms.distributions import DiagonalNormal, Distribution
from motet.algorithms.networks import run
from motet.algorithms.proximal import Acting, Batch, Proximal, Scaled, ScaledLearner, unpack
from motet.algorithms.returns import real
from motet.flow.algorithm import option
from motet.flow.batch import batch_mean
from motet.flow.loops import Flow
from motet.flow.spaces import Box
from motet.flow.values import Rollout, Value

TOLERANCE, FACTOR = 1.3, 1.5
"""How far the divergence may be from its target before the penalty changes, and by how much it then does."""
FIRST_DEVIATION = 0.35
"""That of actions at the start, as a share of half their range."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PenalisedLearner(ScaledLearner):
    penalty: jax.Array  # []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Penalised(Scaled):
    """With the weight of the KL penalty: acting has no use for it, but a view of its own would cost a second copy."""

    penalty: jax.Array  # []


@dataclass(frozen=True)
class BoundedActorCritic(ActorCritic):
    """Continuous actions have their mean within bounds, by tanh, and a deviation that is softplus of `log_std`."""

    def init(self, key: jax.Array) -> Params:
        params = super().init(key)
        if not isinstance(self.actions, Box):
            return params
        return replace(params, log_std=jnp.full_like(params.log_std, math.log(math.expm1(FIRST_DEVIATION))))

    def choose(self, params: Params, features: jax.Array) -> Distribution:
        if not isinstance(self.actions, Box):
            return super().choose(params, features)
        raw = run(self.actor, params.actor, features)
        out = jnp.tanh(raw).reshape(*raw.shape[:-1], *self.actions.shape)
        centre, reach = (jnp.broadcast_to(each, out.shape) for each in centre_and_reach(self.actions))
        deviation = jnp.broadcast_to(jax.nn.softplus(params.log_std), out.shape)
        dtype = jax.dtypes.canonicalize_dtype(self.actions.aval.dtype).name
        return DiagonalNormal(centre + reach * out, jnp.log(reach * deviation), len(self.actions.shape), dtype)


def centre_and_reach(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """The middle of a range and how far it goes from there; 0 and 1 where it has no end."""
    low, high = space.bounds
    ends = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(ends, low, -1.0), np.where(ends, high, 1.0)
    dtype = jnp.result_type(float)
    return ((high + low) / 2).astype(dtype), ((high - low) / 2).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class BatchPPO(Proximal):
    """Proximal policy optimisation with an adaptive KL penalty, for discrete and continuous actions."""

    max_lag: ClassVar[int | None] = 0

    num_envs: int = option(30, 1)
    """Environments that act side by side."""
    num_steps: int = option(200, 1)
    """Environment steps per rollout."""
    update_epochs: int = option(25, 1)
    """Passes over each rollout."""
    num_minibatches: int = option(1, 1)
    """Minibatches in a pass."""
    learning_rate: Rate = option(1e-4, above=0, code=RATE)
    """Step size of Adam. A number, or a schedule of optax or its name."""
    anneal: bool = False
    """Lower the step size linearly to 0 over the run."""
    discount: float = option(0.995, 0, 1)
    """What a reward one step later is worth."""
    gae_lambda: float = option(1.0, 0, 1)
    """How far advantages look ahead: 0 one step, 1 to the rollout's end (Monte Carlo)."""
    value_weight: float = option(0.5, 0)
    """Weight of the value loss."""
    entropy_weight: float = option(0.0, 0)
    """Weight of the entropy bonus."""
    max_gradient_norm: float | None = option(None, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    normalize_observation: bool | None = True
    """Shift and scale observations by the mean and variance of all that were seen before this iteration."""
    observation_clip: float = option(5.0, above=0)
    """How far a normalised observation may be from 0."""
    normalize_reward: bool | None = True
    """Divide rewards by the root mean square of all that were seen before this iteration."""
    hidden: tuple[int, ...] = option((200, 100), 1)
    """Widths of the hidden layers, of policy and value alike."""
    activation: Activation = option("relu", choices=activations.NAMES)
    """Activation of the hidden layers."""
    kl_target: float = option(0.01, above=0)
    """How far the policy should go in an iteration: its KL divergence from the one that acted."""
    first_penalty: float = option(1.0, above=0)
    """Weight of the divergence in the first iteration; it adapts."""
    kl_cutoff: float = option(2.0, 0)
    """From so many times the target on, the square of what is beyond counts as well."""
    cutoff_weight: float = option(1000.0, 0)
    """Weight of that square."""

    actor_critic: ClassVar[type[ActorCritic]] = BoundedActorCritic

    def init(self, key: jax.Array) -> PenalisedLearner:
        learner = start(self.optimiser, self.networks.init(key))
        return PenalisedLearner(
            learner.params, learner.optimiser, self.statistics(), jnp.asarray(self.first_penalty, float)
        )

    def policy(self, state: PenalisedLearner) -> Penalised:
        return Penalised(state.params, state.statistics, state.penalty)

    def behaviour(self, distribution: Distribution, action: jax.Array) -> Distribution:
        return distribution

    def policy_loss(
        self, policy: Penalised, distribution: Distribution, batch: Batch, advantage: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """-E[ratio * advantage] + penalty * KL, with the gradient of weight * max(0, KL - cutoff)^2 besides.

        That gradient is 2 * weight * max(0, KL - cutoff) times the one of KL. Written so, the divergence of the whole
        batch is a constant factor, and the loss remains a mean over the batch.
        """
        ratio = jnp.exp(distribution.log_prob(batch.action) - batch.behaviour.log_prob(batch.action))
        kl = real(batch.behaviour.kl(distribution), batch.valid)
        beyond = jnp.maximum(0, batch_mean(jax.lax.stop_gradient(kl)) - self.kl_cutoff * self.kl_target)
        weight = policy.penalty + 2 * self.cutoff_weight * beyond
        loss = jnp.mean(weight * kl - ratio * advantage)
        return loss, {"kl": jnp.mean(kl), "penalty": policy.penalty}

    def divergence(self, policy: Acting, batch: Batch) -> jax.Array:
        """KL(the policy that acted || the policy now), over the batch."""
        now, _ = self.look_back(unpack(policy)[0], batch)
        return jnp.mean(real(batch.behaviour.kl(now), batch.valid))

    def adapt(self, state: PenalisedLearner, kl: jax.Array) -> PenalisedLearner:
        """Make the penalty heavier after an iteration that went too far, lighter after one that did not go far."""
        too_far, not_far = kl > TOLERANCE * self.kl_target, kl < (2 - TOLERANCE) * self.kl_target
        factor = jnp.where(too_far, FACTOR, jnp.where(not_far, 1 / FACTOR, 1.0))
        return replace(state, penalty=state.penalty * factor)

    def conclude(self, flow: Flow, rollout: Rollout, batch: Value) -> None:
        flow.apply(self.adapt, flow.call(self.divergence, batch))
        super().conclude(flow, rollout, batch)
