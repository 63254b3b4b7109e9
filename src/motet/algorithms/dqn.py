"""Deep Q-learning (Mnih et al. 2015), with what is usually added to it: double targets (van Hasselt et al. 2016),
returns of several steps, dueling values (Wang et al. 2016) and prioritised replay (Schaul et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from motet.algorithms import activations
from motet.algorithms.activations import Activation
from motet.algorithms.descent import OPTIMIZER, RATE, OptimizerOption, Rate, chosen, clipped, steady
from motet.algorithms.networks import Network, make_values
from motet.algorithms.own_networks import NETWORK, NetworkOption, Own
from motet.algorithms.returns import real
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.loops import Flow
from motet.flow.spaces import Discrete, Space
from motet.flow.values import Drawn, Transitions
from motet.replay import Prioritised, Uniform


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
    gradient_steps: int = option(4, 1)
    """Gradient steps in each training."""
    batch_size: int = option(64, 1)
    """Items drawn from the replay for a gradient step."""
    buffer_size: int = option(50_000, 1)
    """Items that the replay holds."""
    learning_starts: int = option(1_000, 0)
    """Environment steps before the first training."""
    learning_rate: Rate = option(5e-4, above=0, code=RATE)
    """Step size of Adam. A number, or a schedule of optax or its name."""
    adam_epsilon: float = option(1e-8, above=0)
    """What Adam adds to the size of gradients: it damps the steps where gradients are tiny."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    target_period: int = option(250, 1)
    """Gradient steps between two copies of the network to the target network."""
    double: bool = True
    """Let the online network choose the action that the target network judges."""
    n_step: int = option(3, 1)
    """Rewards that are added up before the value of what comes next is asked for. Several keep values from running
    away, since what they are learned from is less an estimate of their own; but they are what an older policy came to,
    and with many of them actions are judged by the random ones that followed."""
    dueling: bool = False
    """Let the network judge the state and the actions' advantages apart."""
    prioritised: bool = False
    """Draw items in proportion to how wrong their values were."""
    alpha: float = option(0.6, 0, 1)
    """How much priorities count: 0 is uniform, 1 in proportion."""
    beta: float = option(0.4, 0, 1)
    """How much importance weights make up for priorities at the start; at the end they do so wholly."""
    frames: int | None = option(None, 1)
    """Observations stack so many pictures, of which each is stored once; None: they are stored as they come."""
    first_epsilon: float = option(1.0, 0, 1)
    """The share of random actions at the start."""
    last_epsilon: float = option(0.05, 0, 1)
    """The share of random actions after exploration."""
    exploration: float = option(0.3, 0, 1)
    """The share of the run over which the share of random actions falls."""
    max_gradient_norm: float | None = option(10.0, above=0)
    """Longer gradients are scaled down to this norm; None: never."""
    huber: float | None = option(1.0, above=0)
    """Errors beyond this count in proportion and no longer squared, so that a rare large reward does not drown all
    others; None: all are squared."""
    hidden: tuple[int, ...] = option((128, 128), 1)
    """Widths of the hidden layers. After convolutions there are none, unless other numbers join the
    images."""
    activation: Activation = option("relu", choices=activations.NAMES)
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on.
    none: networks of your own get observations as they are."""
    q_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features to the value of each action: a flax module, a class or function
    that makes one, or its name, as my_nets.py:Tower. None: the hidden layers."""
    optimizer: OptimizerOption = option(None, code=OPTIMIZER)
    """An optimiser of optax in place of Adam and the clipping: one, a function of the spec or the number of
    updates that makes one, or its name."""

    @cached_property
    def network(self) -> Network:
        observations, actions = self.spec.observation_space, self.spec.action_space
        assert isinstance(actions, Discrete)
        outputs = actions.n + 1 if self.dueling else actions.n
        return make_values(observations, outputs, self.hidden, self.activation, self.torso, Own(self))

    def values(self, params: Any, observation: Any) -> jax.Array:
        """[..., actions] what each action is worth."""
        out = self.network(params, observation)
        if not self.dueling:
            return out
        state, advantages = out[..., :1], out[..., 1:]
        return state + advantages - jnp.mean(advantages, -1, keepdims=True)

    @property
    def replay(self) -> Uniform | Prioritised:
        item: dict[str, Any] = {"n_step": self.n_step, "discount": self.discount, "frames": self.frames}
        if not self.prioritised:
            return Uniform(self.buffer_size, **item)
        rows = self.spec.iterations * self.train_frequency
        return Prioritised(self.buffer_size, alpha=self.alpha, beta=self.beta, anneal=rows, **item)

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        adam = optax.adam(steady(self.learning_rate), eps=self.adam_epsilon)
        usual = optax.flatten(optax.chain(clipped(self.max_gradient_norm), adam))
        return chosen(self.optimizer, usual, self.spec, self.spec.iterations * self.gradient_steps)

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
        return Decision(jnp.argmax(self.values(policy.params, observation)).astype(jnp.int32))

    def gradient(self, weights: tuple[Any, Any], sample: Drawn) -> tuple[Any, dict[str, jax.Array], jax.Array]:
        gradients, (metrics, errors) = jax.grad(self.loss, has_aux=True)(*weights, sample)
        return gradients, metrics, errors

    def loss(self, params: Any, target: Any, sample: Drawn) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array]]:
        """The loss, what is reported of it, and how wrong each value was."""
        steps: Transitions = sample.items
        next_target = self.values(target, steps.next_observation)
        if self.double:
            next_value = pick(next_target, jnp.argmax(self.values(params, steps.next_observation), -1))
        else:
            next_value = jnp.max(next_target, -1)
        discount = steps.discount if self.n_step > 1 else self.discount
        goal = steps.reward + discount * jnp.where(steps.terminated, 0, next_value)
        value = pick(self.values(params, steps.observation), steps.action)
        errors = value - jax.lax.stop_gradient(goal)
        weight = sample.weight if self.prioritised else 1.0
        loss = jnp.mean(real(weight * self.penalty(errors), steps.valid))
        # A step that never came back has nothing to learn from: without a priority it is not drawn again.
        return loss, ({"loss": loss, "value": jnp.mean(value)}, jnp.abs(real(errors, steps.valid)))

    def penalty(self, errors: jax.Array) -> jax.Array:
        return errors**2 / 2 if self.huber is None else optax.losses.huber_loss(errors, delta=self.huber)

    def apply(self, state: Learner, gradients: Any) -> Learner:
        changes, optimiser = self.optimiser.update(gradients, state.optimiser, state.params)
        params, updates = optax.apply_updates(state.params, changes), state.updates + 1
        target = optax.periodic_update(params, state.target, updates, self.target_period)
        return Learner(params, target, optimiser, updates)

    def loop(self, flow: Flow) -> None:
        flow.prefill(self.learning_starts)
        steps = flow.unroll(self.act, steps=self.train_frequency)
        flow.remember(steps.transitions, into=self.replay)
        with flow.repeat(self.gradient_steps):
            sample = flow.sample(self.batch_size)
            gradients, metrics, errors = flow.call(self.gradient, sample)
            flow.apply(self.apply, gradients)
            flow.reprioritize(sample, errors)
            flow.report(metrics)


def pick(values: jax.Array, action: jax.Array) -> jax.Array:
    """[..., actions], [...] -> the value of each action taken."""
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]
