"""Twin delayed deep deterministic policy gradients (Fujimoto et al. 2018), with uniform replay.

Three remedies for values that are too high: the lesser of two critics counts, the actor waits until the critics have
moved, and what is chosen next is blurred by noise, so that a peak of the critics' error is worth little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from motet.algorithms import activations, descent
from motet.algorithms.activations import Activation
from motet.algorithms.continuous import Acting, Critic, Scale, explore, follow, make_actor
from motet.algorithms.descent import OPTIMIZER, RATE, OptimizerOption, Rate
from motet.algorithms.networks import Network
from motet.algorithms.own_networks import NETWORK, NetworkOption, Own
from motet.algorithms.returns import real
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.loops import Flow
from motet.flow.spaces import Box, Space
from motet.flow.values import Transitions
from motet.replay import Uniform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """Parameters of the networks."""

    actor: Any
    critics: Any
    """A pair."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    actor: descent.Learner
    critics: descent.Learner
    target: Params
    updates: jax.Array  # [] gradient steps so far


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Gradients:
    """What one batch says of all networks."""

    mean: Params
    share: jax.Array
    """[] Of how much of the batch the actor's gradient was computed; the rest counts as 0 in its mean. Whether it is
    due is decided once, with the weights that it is computed from, which may be older than what it changes."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weights:
    """What a gradient needs."""

    params: Params
    target: Params
    due: jax.Array  # [] whether the actor moves with this gradient step


@dataclass(frozen=True, kw_only=True)
class TD3(Algorithm):
    """Twin delayed deep deterministic policy gradients, for continuous actions."""

    max_lag: ClassVar[int | None] = None
    action_spaces: ClassVar[tuple[type[Space], ...]] = (Box,)

    num_envs: int = option(8, 1)
    """Environments that act side by side."""
    train_frequency: int = option(1, 1)
    """Steps of every environment between two trainings."""
    gradient_steps: int = option(8, 1)
    """Gradient steps in each training."""
    batch_size: int = option(128, 1)
    """Items drawn from the replay for a gradient step."""
    buffer_size: int = option(200_000, 1)
    """Items that the replay holds."""
    learning_starts: int = option(1_000, 0)
    """Environment steps before the first training; until then, actions are random."""
    learning_rate: Rate = option(3e-4, above=0, code=RATE)
    """Step size of Adam, for all networks. A number, or a schedule of optax or its name."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    target_rate: float = option(0.005, 0, 1)
    """How far the target networks move towards the networks each time the actor moves."""
    policy_delay: int = option(2, 1)
    """Gradient steps of the critics for each one of the actor and of the targets."""
    noise: float = option(0.1, 0)
    """The deviation of the noise on actions, where 1 is half of their range."""
    target_noise: float = option(0.2, 0)
    """The deviation of the noise on the actions that the target critics judge."""
    target_noise_clip: float = option(0.5, 0)
    """The most that this noise changes an action."""
    hidden: tuple[int, ...] = option((256, 256), 1)
    """Widths of the hidden layers. After convolutions the actor has none, unless other numbers join the images."""
    activation: Activation = option("relu", choices=activations.NAMES)
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on.
    none: networks of your own get observations as they are."""
    policy_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features to an action, before its tanh: a flax module, a class or function
    that makes one, or its name, as my_nets.py:Tower. None: the hidden layers."""
    q_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features beside an action to its value."""
    optimizer: OptimizerOption = option(None, code=OPTIMIZER)
    """An optimiser of optax in place of Adam: one, a function of the spec or the number of updates that makes one,
    or its name."""

    @cached_property
    def scale(self) -> Scale:
        return Scale.of(self.spec.action_space)

    @property
    def layers(self) -> tuple[tuple[int, ...], str, TorsoName, Own]:
        """What all networks are made of."""
        return self.hidden, self.activation, self.torso, Own(self)

    @cached_property
    def actor(self) -> Network:
        return make_actor(self.spec.observation_space, self.scale.size, *self.layers)

    @cached_property
    def critic(self) -> Critic:
        return Critic.make(self.spec.observation_space, self.scale.size, *self.layers)

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        usual = optax.adam(descent.steady(self.learning_rate))
        return descent.chosen(self.optimizer, usual, self.spec, self.spec.iterations * self.gradient_steps)

    def init(self, key: jax.Array) -> Learner:
        key_actor, *key_critics = jax.random.split(key, 3)
        params = Params(self.actor.init(key_actor), tuple(map(self.critic.init, key_critics)))
        actor, critics = (descent.start(self.optimiser, each) for each in (params.actor, params.critics))
        return Learner(actor, critics, jax.tree.map(jnp.copy, params), jnp.zeros((), jnp.int32))

    def policy(self, state: Learner) -> Acting:
        return Acting(state.actor.params, state.updates == 0)

    def weights(self, state: Learner) -> Weights:
        return Weights(Params(state.actor.params, state.critics.params), state.target, self.due(state))

    def due(self, state: Learner) -> jax.Array:
        """[] Whether the actor moves with the next gradient step."""
        return (state.updates + 1) % self.policy_delay == 0

    def choose(self, actor: Any, observation: Any) -> jax.Array:
        """[..., *observation] -> actions from -1 to 1 [..., n]"""
        return jnp.tanh(self.actor(actor, observation))

    def act(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        unit = explore(self.choose(policy.actor, observation), self.noise, policy.random, key)
        return Decision(self.scale.to_box(unit))

    def exploit(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.scale.to_box(self.choose(policy.actor, observation)))

    def gradient(self, weights: Weights, batch: Transitions, keys: jax.Array) -> tuple[Gradients, dict[str, jax.Array]]:
        """The critics' gradients, and the actor's where they are due; elsewhere they are not computed but 0."""
        params, goal = weights.params, self.goal(weights.target, batch, keys)
        critics, metrics = jax.grad(self.critic_loss, has_aux=True)(params.critics, goal, batch)
        actor = jax.lax.cond(
            weights.due,
            lambda: jax.grad(self.actor_loss)(params.actor, params.critics, batch),
            lambda: jax.tree.map(jnp.zeros_like, params.actor),
        )
        # Counted over rows, it is averaged over pieces of the batch as the gradients are. Rewards are always finite.
        share = jnp.mean(jnp.where(jnp.isfinite(batch.reward), weights.due, 0).astype(batch.reward.dtype))
        return Gradients(Params(actor, critics), share), metrics

    def goal(self, target: Params, batch: Transitions, keys: jax.Array) -> jax.Array:
        """What the value of each action taken should be [N]; an episode that was cut short goes on in it."""
        next_action = self.blur(self.choose(target.actor, batch.next_observation), keys)
        first, second = (self.critic(each, batch.next_observation, next_action) for each in target.critics)
        return batch.reward + self.discount * jnp.where(batch.terminated, 0, jnp.minimum(first, second))

    def blur(self, unit: jax.Array, keys: jax.Array) -> jax.Array:
        """[N, n] actions with clipped noise, each row from its own key."""
        noise = self.target_noise * jax.vmap(lambda key: jax.random.normal(key, unit.shape[1:], unit.dtype))(keys)
        return jnp.clip(unit + jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip), -1, 1)

    def critic_loss(self, critics: Any, goal: jax.Array, batch: Transitions) -> tuple[jax.Array, dict[str, jax.Array]]:
        action = self.scale.to_unit(batch.action)
        values = [self.critic(each, batch.observation, action) for each in critics]
        loss = sum(jnp.mean(real(optax.l2_loss(value, goal), batch.valid)) for value in values)
        return jnp.asarray(loss), {"critic_loss": jnp.asarray(loss), "value": jnp.mean(values[0])}

    def actor_loss(self, actor: Any, critics: Any, batch: Transitions) -> jax.Array:
        value = self.critic(critics[0], batch.observation, self.choose(actor, batch.observation))
        return -jnp.mean(real(value, batch.valid))

    def apply(self, state: Learner, gradients: Gradients) -> Learner:
        """What was due when the gradients were computed, with whatever weights, is done."""
        critics = descent.descend(self.optimiser, state.critics, gradients.mean.critics)

        def move() -> tuple[descent.Learner, Params]:
            mean = jax.tree.map(lambda leaf: leaf / gradients.share, gradients.mean.actor)
            actor = descent.descend(self.optimiser, state.actor, mean)
            return actor, follow(state.target, Params(actor.params, critics.params), self.target_rate)

        actor, target = jax.lax.cond(gradients.share > 0, move, lambda: (state.actor, state.target))
        return Learner(actor, critics, target, state.updates + 1)

    def loop(self, flow: Flow) -> None:
        flow.prefill(self.learning_starts)
        steps = flow.unroll(self.act, steps=self.train_frequency)
        flow.remember(steps.transitions, into=Uniform(self.buffer_size))
        with flow.repeat(self.gradient_steps):
            sample = flow.sample(self.batch_size)
            gradients, metrics = flow.call(self.gradient, sample.items)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
