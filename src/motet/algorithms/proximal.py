"""What proximal policy optimisers share: rollouts, GAE, and several passes over each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

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
from motet.algorithms.distributions import Distribution
from motet.algorithms.normalize import PLAIN, Statistics, is_wide
from motet.algorithms.own_networks import NETWORK, NetworkOption, Own
from motet.algorithms.recurrent import CORES, Core, CoreName
from motet.algorithms.returns import gae, real
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, Spec, option
from motet.flow.batch import batch_moments, where_any
from motet.flow.loops import Flow
from motet.flow.spaces import Box, Space, parts
from motet.flow.values import Rollout, Value

MOST_MINIBATCHES, SMALLEST_MINIBATCH = 32, 64
"""What is chosen of a rollout if nobody says: at most so many minibatches, of at least so many steps."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    observation: Any  # [T, B, ...], or [N, ...] in a minibatch, as all of these; as networks see it
    action: jax.Array
    behaviour: Any
    """What is needed of the policy that acted to tell how far a new one is from it."""
    value: jax.Array
    advantage: jax.Array
    target: jax.Array
    valid: Any = ()
    """Which steps really happened; () where all did."""
    first: Any = ()
    """For a policy with a memory, which steps open an episode; else ()."""
    memory: Any = ()
    """And what it remembered at the start, [B, ...]."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScaledLearner(Learner):
    """A learner state with streaming statistics."""

    statistics: Statistics


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Scaled:
    """Parameters, and the statistics of what they are used on."""

    params: Params
    statistics: Statistics


Acting = Params | Scaled
"""What acting needs: statistics travel only where there are any."""


def unpack(policy: Acting) -> tuple[Params, Statistics]:
    return (policy.params, policy.statistics) if isinstance(policy, Scaled) else (policy, PLAIN)


@dataclass(frozen=True, kw_only=True)
class Proximal(Algorithm):
    """Several passes over each rollout, with something in the policy's loss that keeps it near the one that acted."""

    max_lag: ClassVar[int | None] = 4
    action_spaces: ClassVar[tuple[type[Space], ...]] = EVERY_SPACE

    num_envs: int = option(8, 1)
    """Environments that act side by side."""
    num_steps: int = option(256, 1)
    """Environment steps per rollout."""
    update_epochs: int = option(10, 1)
    """Passes over each rollout."""
    num_minibatches: int | None = option(None, 1)
    """Minibatches in a pass. None: 32, or fewer where they would have less than 64 steps each."""
    learning_rate: Rate = option(1e-3, above=0, code=RATE)
    """Step size of Adam. A number, or a schedule of optax or its name."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    gae_lambda: float = option(0.95, 0, 1)
    """How far advantages look ahead: 0 one step, 1 to the rollout's end."""
    value_weight: float = option(0.25, 0)
    """Weight of the value loss."""
    entropy_weight: float = option(0.0, 0)
    """Weight of the entropy bonus."""
    max_gradient_norm: float | None = option(0.5, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    normalize_advantage: bool = True
    """Shift and scale each minibatch's advantages to mean 0 and variance 1."""
    normalize_observation: bool | None = None
    """Shift and scale observations by the mean and variance of all that were seen before this iteration; pictures
    pixel by pixel, so that what moves stands out from what does not. None: where real numbers are bounded, but some
    by more than 10, since those would saturate the hidden layers."""
    observation_clip: float = option(10.0, above=0)
    """How far a normalised observation may be from 0."""
    normalize_reward: bool | None = None
    """Divide rewards by the root mean square of all that were seen before this iteration. None: where actions are
    continuous, since such tasks have rewards of every size."""
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
    """An optimiser of optax in place of Adam and the clipping: one, a function of the spec or the number of
    updates that makes one, or its name."""
    core: CoreName = option("none", choices=CORES)
    """What remembers earlier steps of an episode: none, gru or lstm. With one, minibatches are whole sequences."""
    core_size: int = option(64, 1)
    """Width of what is remembered."""

    actor_critic: ClassVar[type[ActorCritic]] = ActorCritic

    def bind(self, spec: Spec) -> Self:
        """What was left open is settled, so that a run's configuration says what was chosen."""
        bound = super().bind(spec)
        object.__setattr__(bound, "num_minibatches", self.minibatches)
        if self.normalize_reward is None:
            object.__setattr__(bound, "normalize_reward", isinstance(spec.action_space, Box))
        if self.normalize_observation is None:
            object.__setattr__(bound, "normalize_observation", any(map(is_wide, parts(spec.observation_space))))
        return bound

    @property
    def minibatches(self) -> int:
        """Minibatches in a pass: those asked for, or the most that divide a rollout into no less than
        `SMALLEST_MINIBATCH` steps each. With a memory they are whole sequences, so they divide the environments."""
        if self.num_minibatches is not None:
            return self.num_minibatches
        rows = self.num_envs * self.num_steps
        whole = self.num_envs if self.remembers else rows
        most = min(MOST_MINIBATCHES, max(1, rows // SMALLEST_MINIBATCH))
        return max(count for count in range(1, most + 1) if whole % count == 0)

    @cached_property
    def networks(self) -> ActorCritic:
        spec, core = self.spec, Core(self.core, self.core_size)
        spaces = (spec.observation_space, spec.action_space)
        return self.actor_critic.make(*spaces, self.hidden, self.activation, self.torso, core, Own(self))

    @property
    def remembers(self) -> bool:
        return self.core != "none"

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        updates = self.spec.iterations * self.update_epochs * self.minibatches
        rate = falling(self.learning_rate, updates, self.anneal)
        usual = optax.chain(clipped(self.max_gradient_norm), optax.adam(rate, eps=1e-5))
        return chosen(self.optimizer, usual, self.spec, updates)

    # The learner state. It has statistics only if they are asked for.

    @property
    def normalizes(self) -> bool:
        return bool(self.normalize_observation or self.normalize_reward)

    def init(self, key: jax.Array) -> Learner:
        learner = start(self.optimiser, self.networks.init(key))
        return ScaledLearner(learner.params, learner.optimiser, self.statistics()) if self.normalizes else learner

    def statistics(self) -> Statistics:
        """Those of a run that has seen nothing."""
        seen = self.spec.observation_space.aval
        return Statistics.start(
            seen, observations=bool(self.normalize_observation), rewards=bool(self.normalize_reward)
        )

    def policy(self, state: Any) -> Any:
        return Scaled(state.params, state.statistics) if isinstance(state, ScaledLearner) else state.params

    # Acting.

    def memory(self) -> Any:
        return Core(self.core, self.core_size).initial_memory()

    def act(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        params, statistics = unpack(policy)
        observation = statistics.observe(observation, self.observation_clip)
        memory, distribution, value = self.networks.step(params, memory, observation)
        action = distribution.sample(key)
        return Decision(action, memory, (self.behaviour(distribution, action), value))

    def behaviour(self, distribution: Distribution, action: jax.Array) -> Any:
        """What the loss wants to know later of the policy that acted."""
        return distribution.log_prob(action)

    def exploit(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        params, statistics = unpack(policy)
        observation = statistics.observe(observation, self.observation_clip)
        memory, distribution, _ = self.networks.step(params, memory, observation)
        return Decision(distribution.mode(), memory)

    # Learning.

    def targets(self, policy: Acting, rollout: Rollout) -> Batch:
        _, statistics = unpack(policy)
        behaviour, value = rollout.extras
        next_value = self.next_value(policy, rollout, value)
        reward = statistics.scale(rollout.reward)
        ends = (rollout.terminated, rollout.truncated)
        advantage = gae(reward, value, next_value, *ends, self.discount, self.gae_lambda, rollout.valid)
        observation = statistics.observe(rollout.observation, self.observation_clip)
        past = (rollout.valid, rollout.first, rollout.memory)
        return Batch(observation, rollout.action, behaviour, value, advantage, advantage + value, *past)

    def next_value(self, policy: Acting, rollout: Rollout, value: jax.Array) -> jax.Array:
        """The values of the true next observations: known from acting, but for the last and for cut-off episodes."""
        params, statistics = unpack(policy)
        if self.remembers:
            seen, following = (
                statistics.observe(each, self.observation_clip)
                for each in (rollout.observation, rollout.next_observation)
            )
            return self.networks.look_ahead(params, rollout.memory, seen, following, rollout.first)

        def judge(observation: Any) -> jax.Array:
            return self.networks.value(params, statistics.observe(observation, self.observation_clip))

        last = judge(jax.tree.map(lambda leaf: leaf[-1], rollout.next_observation))
        known = jnp.concatenate([value[1:], last[None]])

        def look(step: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
            truncated, observation, otherwise = step
            return jnp.where(truncated, judge(observation), otherwise)

        def one_step(step: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
            # Most steps cut off no episode: then there is nothing to look at.
            truncated, observation, otherwise = step
            return where_any(truncated, lambda: judge(observation), otherwise)

        # To look only where there is something to see pays on a CPU; elsewhere all at once is faster than a choice.
        steps = (rollout.truncated, rollout.next_observation, known)
        return jax.lax.platform_dependent(steps, cpu=lambda steps: jax.lax.map(one_step, steps), default=look)

    def gradient(self, policy: Acting, batch: Batch) -> tuple[Params, dict[str, jax.Array]]:
        advantage = batch.advantage
        if self.normalize_advantage:
            mean, variance = batch_moments(advantage)
            advantage = real((advantage - mean) / (jnp.sqrt(variance) + 1e-8), batch.valid)
        return jax.grad(self.loss, has_aux=True)(unpack(policy)[0], policy, batch, advantage)

    def loss(
        self, params: Params, policy: Acting, batch: Batch, advantage: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        distribution, value = self.look_back(params, batch)
        policy_loss, metrics = self.policy_loss(policy, distribution, batch, advantage)
        value_loss = 0.5 * jnp.mean(real(self.value_error(value, batch), batch.valid))
        entropy = jnp.mean(real(distribution.entropy(), batch.valid))
        total = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        ours = {"loss": total, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return total, {**ours, **metrics}

    def look_back(self, params: Params, batch: Batch) -> tuple[Distribution, jax.Array]:
        """What the new parameters make of a batch: steps by themselves, or sequences for a policy with a memory."""
        if self.remembers:
            return self.networks.sequence(params, batch.memory, batch.observation, batch.first)
        return self.networks.policy_and_value(params, batch.observation)

    def policy_loss(
        self, policy: Any, distribution: Distribution, batch: Batch, advantage: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss of a new `distribution`, and metrics; `policy` is what the learner state says besides parameters."""
        raise NotImplementedError(f"{type(self).__name__} must define policy_loss")

    def value_error(self, value: jax.Array, batch: Batch) -> jax.Array:
        return jnp.square(value - batch.target)

    def apply(self, state: Learner, gradients: Params) -> Learner:
        return descend(self.optimiser, state, gradients)

    # The end of an iteration.

    def measure(self, policy: Acting, rollout: Rollout) -> Statistics:
        _, statistics = unpack(policy)
        return statistics.measure(rollout.observation, rollout.reward, self.num_steps * self.num_envs)

    def absorb(self, state: Any, seen: Statistics) -> Any:
        return replace(state, statistics=state.statistics.merge(seen))

    def conclude(self, flow: Flow, rollout: Rollout, batch: Value) -> None:
        """What an iteration ends with. Statistics change here, so that all of it reads the same ones."""
        if self.normalizes:
            flow.apply(self.absorb, flow.call(self.measure, rollout))

    def loop(self, flow: Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        batch = flow.call(self.targets, rollout)
        passes = {"epochs": self.update_epochs, "count": self.minibatches, "sequences": self.remembers}
        with flow.minibatches(batch, **passes) as minibatch:
            gradients, metrics = flow.call(self.gradient, minibatch)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
        self.conclude(flow, rollout, batch)
