"""Deep Q-learning (Mnih et al. 2015), with double targets (van Hasselt et al. 2016) and uniform replay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from motet.algorithms.descent import clipped
from motet.algorithms.networks import MLP, Network
from motet.algorithms.returns import real
from motet.algorithms.torsos import TORSOS, Torso, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.spaces import Discrete, Space
from motet.flow.trace import Flow
from motet.flow.values import Transitions
from motet.replay import Uniform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    params: Any
    target: Any
    optimiser: Any
    updates: jax.Array  # [] gradient steps so far


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Greedy:
    """What acting needs: the network and how often to ignore it."""

    params: Any
    epsilon: jax.Array  # []


@dataclass(frozen=True, kw_only=True)
class DQN(Algorithm):
    """Deep Q-learning, for discrete actions."""

    max_lag: ClassVar[int | None] = None
    action_spaces: ClassVar[tuple[type[Space], ...]] = (Discrete,)

    num_envs: int = option(8, 1)
    """Environments that act side by side."""
    train_frequency: int = option(1, 1)
    """Steps of every environment between two trainings."""
    gradient_steps: int = option(1, 1)
    """Gradient steps in each training."""
    batch_size: int = option(128, 1)
    """Items drawn from the replay for a gradient step."""
    buffer_size: int = option(50_000, 1)
    """Items that the replay holds."""
    learning_starts: int = option(1_000, 0)
    """Environment steps before the first training."""
    learning_rate: float = option(5e-4, above=0)
    """Step size of Adam."""
    adam_epsilon: float = option(0.01, above=0)
    """What Adam adds to the size of gradients: it damps the steps where gradients are tiny."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    target_period: int = option(50, 1)
    """Gradient steps between two copies of the network to the target network."""
    double: bool = True
    """Let the online network choose the action that the target network judges."""
    first_epsilon: float = option(1.0, 0, 1)
    """The share of random actions at the start."""
    last_epsilon: float = option(0.05, 0, 1)
    """The share of random actions after exploration."""
    exploration: float = option(0.3, 0, 1)
    """The share of the run over which the share of random actions falls."""
    max_gradient_norm: float | None = option(10.0, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    hidden: tuple[int, ...] = option((128, 128), 1)
    """Widths of the hidden layers. After convolutions there are none, unless other numbers join the
    images."""
    activation: Literal["tanh", "relu"] = option("relu", choices=("tanh", "relu"))
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on."""

    @cached_property
    def network(self) -> Network:
        observations, actions = self.spec.observation_space, self.spec.action_space
        assert isinstance(actions, Discrete)
        layers = Torso.make(observations, self.torso).layers(self.hidden)
        return Network(MLP(layers, actions.n, self.activation, random_biases=True), observations, self.torso)

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.chain(clipped(self.max_gradient_norm), optax.adam(self.learning_rate, eps=self.adam_epsilon))

    def init(self, key: jax.Array) -> Learner:
        params = self.network.init(key)
        return Learner(params, jax.tree.map(jnp.copy, params), self.optimiser.init(params), jnp.zeros((), jnp.int32))

    def policy(self, state: Learner) -> Greedy:
        falling = max(1.0, self.exploration * self.spec.iterations * self.gradient_steps)
        done = jnp.minimum(state.updates / falling, 1.0)
        return Greedy(state.params, self.first_epsilon + done * (self.last_epsilon - self.first_epsilon))

    def weights(self, state: Learner) -> tuple[Any, Any]:
        return state.params, state.target

    def act(self, policy: Greedy, memory: Any, observation: Any, key: jax.Array) -> Decision:
        key_choice, key_action = jax.random.split(key)
        explore = jax.random.uniform(key_choice) < policy.epsilon
        best = self.exploit(policy, memory, observation, key).action
        return Decision(jnp.where(explore, self.spec.action_space.sample(key_action), best))

    def exploit(self, policy: Greedy, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(jnp.argmax(self.network(policy.params, observation)).astype(jnp.int32))

    def gradient(self, weights: tuple[Any, Any], sample: Transitions) -> tuple[Any, dict[str, jax.Array]]:
        return jax.grad(self.loss, has_aux=True)(*weights, sample)

    def loss(self, params: Any, target: Any, sample: Transitions) -> tuple[jax.Array, dict[str, jax.Array]]:
        next_target = self.network(target, sample.next_observation)
        next_online = self.network(params, sample.next_observation) if self.double else next_target
        next_value = pick(next_target, jnp.argmax(next_online, -1))
        goal = sample.reward + self.discount * jnp.where(sample.terminated, 0, next_value)
        value = pick(self.network(params, sample.observation), sample.action)
        loss = jnp.mean(real(optax.l2_loss(value, jax.lax.stop_gradient(goal)), sample.valid))
        return loss, {"loss": loss, "value": jnp.mean(value)}

    def apply(self, state: Learner, gradients: Any) -> Learner:
        changes, optimiser = self.optimiser.update(gradients, state.optimiser, state.params)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        target = optax.periodic_update(params, state.target, updates, self.target_period)
        return Learner(params, target, optimiser, updates)

    def loop(self, flow: Flow) -> None:
        flow.prefill(self.learning_starts)
        steps = flow.unroll(self.act, steps=self.train_frequency)
        flow.remember(steps.transitions, into=Uniform(self.buffer_size))
        with flow.repeat(self.gradient_steps):
            sample = flow.sample(self.batch_size)
            gradients, metrics = flow.call(self.gradient, sample)
            flow.apply(self.apply, gradients)
            flow.report(metrics)


def pick(values: jax.Array, action: jax.Array) -> jax.Array:
    """[..., actions], [...] -> the value of each action taken."""
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]
