"""Soft actor-critic (Haarnoja et al. 2018), with a learned temperature and uniform replay.

For discrete actions, expectations over them are exact (Christodoulou 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from motet.algorithms import activations, descent
from motet.algorithms.activations import Activation
from motet.algorithms.continuous import Acting, follow, make_actor
from motet.algorithms.descent import OPTIMIZER, RATE, OptimizerOption, Rate
from motet.algorithms.networks import Network
from motet.algorithms.own_networks import NETWORK, NetworkOption, Own
from motet.algorithms.returns import real
from motet.algorithms.soft import ActionMethods, make_choice
from motet.algorithms.torsos import TORSOS, TorsoName
from motet.flow.algorithm import Algorithm, Decision, option
from motet.flow.loops import Flow
from motet.flow.spaces import Box, Discrete, Space
from motet.flow.values import Transitions
from motet.replay import Uniform


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    """What is learned."""

    actor: Any
    critics: Any
    """A pair."""
    log_temperature: jax.Array  # []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    online: descent.Learner
    """`Params` and their optimiser."""
    target: Any
    """The pair of target critics."""
    updates: jax.Array  # [] gradient steps so far


@dataclass(frozen=True, kw_only=True)
class SAC(Algorithm):
    """Soft actor-critic, for continuous actions and for discrete ones."""

    max_lag: ClassVar[int | None] = None
    action_spaces: ClassVar[tuple[type[Space], ...]] = (Box, Discrete)

    num_envs: int = option(4, 1)
    """Environments that act side by side."""
    train_frequency: int = option(1, 1)
    """Steps of every environment between two trainings."""
    gradient_steps: int = option(6, 1)
    """Gradient steps in each training."""
    batch_size: int = option(128, 1)
    """Items drawn from the replay for a gradient step."""
    buffer_size: int = option(200_000, 1)
    """Items that the replay holds."""
    learning_starts: int = option(200, 0)
    """Environment steps before the first training; until then, actions are random."""
    random_hold: int = option(1, 1)
    """Steps for which such a random action is held, on average. Held ones reach further where a task is slow."""
    learning_rate: Rate = option(1e-3, above=0, code=RATE)
    """Step size of Adam, for the networks and the temperature. A number, or a schedule of optax or its name."""
    discount: float = option(0.99, 0, 1)
    """What a reward one step later is worth."""
    target_rate: float = option(0.005, 0, 1)
    """How far the target critics move towards the critics with each gradient step."""
    temperature: float = option(1.0, above=0)
    """What entropy is worth, in rewards; at the start, if it is learned."""
    learn_temperature: bool = True
    """Move the temperature so that the entropy of actions becomes `target_entropy`."""
    target_entropy: float | None = None
    """Of an action, whose numbers go from -1 to 1. None: minus their count; of discrete ones half of what it can be."""
    hidden: tuple[int, ...] = option((256, 256), 1)
    """Widths of the hidden layers. After convolutions the actor has none, unless other numbers join the images."""
    activation: Activation = option("relu", choices=activations.NAMES)
    """Activation of the hidden layers."""
    torso: TorsoName = option("auto", choices=TORSOS)
    """What looks at images: convolutions (nature; impala is deeper) or the mlp. auto: nature from 36 x 36 pixels on.
    none: networks of your own get observations as they are."""
    policy_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features to what an action is drawn from: a flax module, a class or function
    that makes one, or its name, as my_nets.py:Tower. None: the hidden layers."""
    q_network: NetworkOption = option(None, code=NETWORK)
    """A network of your own from features beside an action to its value; of discrete ones, to the values of all."""
    optimizer: OptimizerOption = option(None, code=OPTIMIZER)
    """An optimiser of optax in place of Adam: one, a function of the spec or the number of updates that makes one,
    or its name."""

    @property
    def layers(self) -> tuple[tuple[int, ...], str, TorsoName, Own]:
        """What all networks are made of."""
        return self.hidden, self.activation, self.torso, Own(self)

    @cached_property
    def choice(self) -> ActionMethods:
        return make_choice(self.spec.observation_space, self.spec.action_space, *self.layers)

    @cached_property
    def actor(self) -> Network:
        return make_actor(self.spec.observation_space, self.choice.outputs, *self.layers)

    @cached_property
    def optimiser(self) -> optax.GradientTransformation:
        usual = optax.adam(descent.steady(self.learning_rate))
        return descent.chosen(self.optimizer, usual, self.spec, self.spec.iterations * self.gradient_steps)

    def init(self, key: jax.Array) -> Learner:
        key_actor, *key_critics = jax.random.split(key, 3)
        critics = tuple(map(self.choice.init_critic, key_critics))
        params = Params(self.actor.init(key_actor), critics, jnp.asarray(math.log(self.temperature)))
        online = descent.start(self.optimiser, params)
        return Learner(online, jax.tree.map(jnp.copy, critics), jnp.zeros((), jnp.int32))

    def policy(self, state: Learner) -> Acting:
        return Acting(state.online.params.actor, state.updates == 0)

    def weights(self, state: Learner) -> tuple[Params, Any]:
        return state.online.params, state.target

    def memory(self) -> Any:
        """The random action that is held, and whether one is."""
        aval = self.spec.action_space.aval
        return (jnp.zeros(aval.shape, aval.dtype), jnp.zeros((), bool)) if self.random_hold > 1 else ()

    def act(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        key_draw, key_random, key_hold = jax.random.split(key, 3)
        random = self.spec.action_space.sample(key_random)
        if self.random_hold > 1:
            held, holds = memory
            holds &= jax.random.uniform(key_hold) >= 1 / self.random_hold
            random = jnp.where(holds, held, random)
            memory = random, jnp.ones((), bool)
        drawn = self.choice.draw(self.actor(policy.actor, observation), key_draw)
        return Decision(jnp.where(policy.random, random, drawn), memory)

    def exploit(self, policy: Acting, memory: Any, observation: Any, key: jax.Array) -> Decision:
        return Decision(self.choice.best(self.actor(policy.actor, observation)), memory)

    def gradient(
        self, weights: tuple[Params, Any], sample: Transitions, keys: jax.Array
    ) -> tuple[Params, dict[str, jax.Array]]:
        return jax.grad(self.loss, has_aux=True)(*weights, sample, jax.vmap(jax.random.split)(keys))

    def loss(
        self, params: Params, target: Any, batch: Transitions, keys: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The losses of the critics, the actor and the temperature; none has a gradient for another's parameters."""
        temperature = jax.lax.stop_gradient(jnp.exp(params.log_temperature))
        goal = jax.lax.stop_gradient(self.goal(params.actor, target, temperature, batch, keys[:, 0]))
        values = self.choice.taken(params.critics, batch.observation, batch.action)
        critic_loss = sum(jnp.mean(real(optax.l2_loss(value, goal), batch.valid)) for value in values)

        chosen, judges = self.actor(params.actor, batch.observation), jax.lax.stop_gradient(params.critics)
        value, entropies = self.choice.outlook(chosen, judges, batch.observation, keys[:, 1])
        actor_loss = -jnp.mean(real(value + temperature * entropies, batch.valid))

        excess = jnp.mean(real(jax.lax.stop_gradient(entropies) - self.wanted_entropy, batch.valid))
        temperature_loss = params.log_temperature * excess if self.learn_temperature else 0
        metrics = {
            "critic_loss": jnp.asarray(critic_loss),
            "actor_loss": actor_loss,
            "value": jnp.mean(value),
            "entropy": jnp.mean(entropies),
            "temperature": temperature,
        }
        return critic_loss + actor_loss + temperature_loss, metrics

    def goal(self, actor: Any, target: Any, temperature: jax.Array, batch: Transitions, keys: jax.Array) -> jax.Array:
        """What the value of each action taken should be [N]; an episode that was cut short goes on in it."""
        policy = self.actor(actor, batch.next_observation)
        value, entropy = self.choice.outlook(policy, target, batch.next_observation, keys)
        return batch.reward + self.discount * jnp.where(batch.terminated, 0, value + temperature * entropy)

    @property
    def wanted_entropy(self) -> float:
        return self.choice.usual_entropy if self.target_entropy is None else self.target_entropy

    def apply(self, state: Learner, gradients: Params) -> Learner:
        online = descent.descend(self.optimiser, state.online, gradients)
        target = follow(state.target, online.params.critics, self.target_rate)
        return Learner(online, target, state.updates + 1)

    def loop(self, flow: Flow) -> None:
        flow.prefill(self.learning_starts)
        steps = flow.unroll(self.act, steps=self.train_frequency)
        flow.remember(steps.transitions, into=Uniform(self.buffer_size))
        with flow.repeat(self.gradient_steps):
            sample = flow.sample(self.batch_size)
            gradients, metrics = flow.call(self.gradient, sample.items)
            flow.apply(self.apply, gradients)
            flow.report(metrics)
