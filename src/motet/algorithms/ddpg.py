"""Deep deterministic policy gradients (Lillicrap et al. 2016), with normal noise and uniform replay."""

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
    """Parameters of both networks."""

    actor: Any
    critic: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    online: descent.Learner
    """`Params` and their optimiser."""
    target: Params
    updates: jax.Array  # [] gradient steps so far


@dataclass(frozen=True, kw_only=True)
class DDPG(Algorithm):
    """Deep deterministic policy gradients, for continuous actions."""

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
    learning_rate: Rate = option(1e-3, above=0, code=RATE)
    """Step size of Adam, for both networks. A number, or a schedule of optax or its name."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    target_rate: float = option(0.005, 0, 1)
    """How far the target networks move towards the networks with each gradient step."""
    noise: float = option(0.1, 0)
    """The deviation of the noise on actions, where 1 is half of their range."""
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
        key_actor, key_critic = jax.random.split(key)
        params = Params(self.actor.init(key_actor), self.critic.init(key_critic))
        online = descent.start(self.optimiser, params)
        return Learner(online, jax.tree.map(jnp.copy, params), jnp.zeros((), jnp.int32))

    def policy(self, state: Learner) -> Acting:
        return Acting(state.online.params.actor, state.updates == 0)

    def weights(self, state: Learner) -> tuple[Params, Params]:
        return state.online.params, state.target

    def choose(self, actor: Any, observation: Any) -> jax.Array:
        """[..., *observation] -> actions from -1 to 1 [..., n]"""
        return jnp.tanh(self.actor(actor, observation))

    def act(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        unit = explore(self.choose(policy.actor, observation), self.noise, policy.random, key)
        return Decision(self.scale.to_box(unit))

    def exploit(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.scale.to_box(self.choose(policy.actor, observation)))

    def gradient(self, weights: tuple[Params, Params], sample: Transitions) -> tuple[Params, dict[str, jax.Array]]:
        return jax.grad(self.loss, has_aux=True)(*weights, sample)

    def loss(self, params: Params, target: Params, batch: Transitions) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The losses of both networks; neither has a gradient for the other."""
        goal = jax.lax.stop_gradient(self.goal(target, batch))
        value = self.critic(params.critic, batch.observation, self.scale.to_unit(batch.action))
        critic_loss = jnp.mean(real(optax.l2_loss(value, goal), batch.valid))
        judge, chosen = jax.lax.stop_gradient(params.critic), self.choose(params.actor, batch.observation)
        actor_loss = -jnp.mean(real(self.critic(judge, batch.observation, chosen), batch.valid))
        metrics = {"critic_loss": critic_loss, "actor_loss": actor_loss, "value": jnp.mean(value)}
        return critic_loss + actor_loss, metrics

    def goal(self, target: Params, batch: Transitions) -> jax.Array:
        """What the value of each action taken should be [N]; an episode that was cut short goes on in it."""
        next_action = self.choose(target.actor, batch.next_observation)
        next_value = self.critic(target.critic, batch.next_observation, next_action)
        return batch.reward + self.discount * jnp.where(batch.terminated, 0, next_value)

    def apply(self, state: Learner, gradients: Params) -> Learner:
        online = descent.descend(self.optimiser, state.online, gradients)
        return Learner(online, follow(state.target, online.params, self.target_rate), state.updates + 1)

    def loop(self, flow: Flow) -> None:
        flow.prefill(self.learning_starts)
        steps = flow.unroll(self.act, steps=self.train_frequency)
        flow.remember(steps.transitions, into=Uniform(self.buffer_size))
        with flow.repeat(self.gradient_steps):
            sample = flow.sample(self.batch_size)
            gradients, metrics = flow.call(self.gradient, sample.items)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
