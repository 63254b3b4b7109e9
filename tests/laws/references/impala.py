"""IMPALA on CartPole: an actor-critic with V-trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from benchmarks.handwritten_ppo import fold_all, named, taken
from tests.laws.references.network import Layers
from tests.laws.references.worlds import Now, Steps, World, address, advance, begin


@dataclass(frozen=True)
class Settings:
    """The options of a run, called as motet calls them."""

    num_envs: int
    num_steps: int
    learning_rate: float
    discount: float
    trace: float
    rho_clip: float
    c_clip: float
    value_weight: float
    entropy_weight: float
    max_gradient_norm: float
    hidden: tuple[int, ...]


class State(NamedTuple):
    params: tuple[Any, Any]  # actor, critic
    optimiser: Any


class Reference:
    """The functions of one run."""

    def __init__(self, settings: Settings, world: World, iterations: int):
        self.settings, self.world = settings, world
        self.actor = Layers(settings.hidden, 2, nn.tanh, 0.01, biased=False)
        self.critic = Layers(settings.hidden, 1, nn.tanh, biased=False)

        def rate(count: jax.Array) -> jax.Array:
            return settings.learning_rate * (1 - jnp.minimum(count.astype(float) / iterations, 1))

        self.optimiser = optax.chain(
            optax.clip_by_global_norm(settings.max_gradient_norm), optax.rmsprop(rate, decay=0.99, eps=1e-5)
        )

    def log_p(self, params: Any, observation: jax.Array) -> jax.Array:
        out = self.actor.apply(params[0], observation)
        assert isinstance(out, jax.Array)
        return jax.nn.log_softmax(out)

    def value(self, params: Any, observation: jax.Array) -> jax.Array:
        out = self.critic.apply(params[1], observation)
        assert isinstance(out, jax.Array)
        return out[..., 0]

    @partial(jax.jit, static_argnums=0)
    def step(self, params: Any, now: Now, key_act: Any, key_env: Any) -> tuple[Now, Steps, jax.Array]:
        log_p = self.log_p(params, self.world.observe(now.state))
        action = jax.vmap(jax.random.categorical)(fold_all(key_act, len(log_p)), log_p)
        now, steps, _ = advance(self.world, now, action, key_env)
        return now, steps, taken(log_p, action)

    def targets(self, params: Any, steps: Steps, ratio: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        """V-trace's value targets and advantages [T, B], step by step from the last one."""
        settings = self.settings
        following = jnp.where(steps.terminated, 0, self.value(params, steps.next_observation))
        rho = jnp.minimum(settings.rho_clip, ratio)
        c = settings.trace * jnp.minimum(settings.c_clip, ratio)
        goes_on = ~(steps.terminated | steps.truncated)
        targets, advantages = [], []
        beyond = jnp.zeros_like(value[0])  # how much the target of the next step is above its value
        for t in reversed(range(settings.num_steps)):
            beyond = jnp.where(goes_on[t], beyond, 0)
            error = rho[t] * (steps.reward[t] + settings.discount * following[t] - value[t])
            advantages.append(error + rho[t] * settings.discount * settings.trace * beyond)
            beyond = error + settings.discount * c[t] * beyond
            targets.append(value[t] + beyond)
        return jnp.stack(targets[::-1]), jnp.stack(advantages[::-1])

    def loss(self, params: Any, steps: Steps, behaviour: jax.Array) -> jax.Array:
        all_log_p, value = self.log_p(params, steps.observation), self.value(params, steps.observation)
        log_p = taken(all_log_p, steps.action)
        target, advantage = jax.lax.stop_gradient(self.targets(params, steps, jnp.exp(log_p - behaviour), value))
        entropy = -jnp.mean(jnp.sum(jnp.exp(all_log_p) * all_log_p, -1))
        value_loss = 0.5 * jnp.mean((value - target) ** 2)
        return (
            -jnp.mean(log_p * advantage)
            + self.settings.value_weight * value_loss
            - self.settings.entropy_weight * entropy
        )

    @partial(jax.jit, static_argnums=0)
    def update(self, state: State, steps: Steps, behaviour: jax.Array) -> State:
        gradient = jax.grad(self.loss)(state.params, steps, behaviour)
        changes, optimiser = self.optimiser.update(gradient, state.optimiser, state.params)
        return State(optax.apply_updates(state.params, changes), optimiser)


def train(settings: Settings, world: World, seed: int, iterations: int) -> tuple[State, State]:
    """The states before and after so many iterations."""
    self, root = Reference(settings, world, iterations), jax.random.key(seed)
    blank = jnp.zeros(world.observation_size)
    key_actor, key_critic, *_ = jax.random.split(named(root, "init/learner"), 4)
    params = self.actor.init(key_actor, blank), self.critic.init(key_critic, blank)
    first = state = State(params, self.optimiser.init(params))
    now = begin(world, root, settings.num_envs)
    for iteration in range(iterations):
        rows = []
        for t in range(settings.num_steps):
            keys = (address(root, node, iteration, t) for node in ("act", "env"))
            now, steps, behaviour = self.step(state.params, now, *keys)
            rows.append((steps, behaviour))
        state = self.update(state, *jax.tree.map(lambda *each: jnp.stack(each), *rows))
    return first, state
