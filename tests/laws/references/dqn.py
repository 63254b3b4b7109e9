"""Deep Q-learning on CartPole: double targets, returns of n steps, dueling values, prioritised replay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.handwritten_ppo import fold_all, named
from tests.laws.references.network import Layers
from tests.laws.references.ring import Items, Priorities, Ring
from tests.laws.references.worlds import PREFILL, Now, Steps, World, address, advance, begin


@dataclass(frozen=True)
class Settings:
    """The options of a run, called as motet calls them."""

    num_envs: int
    train_frequency: int
    gradient_steps: int
    batch_size: int
    buffer_size: int
    learning_starts: int
    learning_rate: float
    adam_epsilon: float
    discount: float
    target_period: int
    n_step: int
    dueling: bool
    prioritised: bool
    alpha: float
    beta: float
    first_epsilon: float
    last_epsilon: float
    exploration: float
    max_gradient_norm: float
    huber: float
    hidden: tuple[int, ...]


class State(NamedTuple):
    params: Any
    target: Any
    optimiser: Any
    updates: int


class Reference:
    """The functions of one run."""

    def __init__(self, settings: Settings, world: World, iterations: int):
        self.settings, self.world, self.iterations = settings, world, iterations
        self.network = Layers(settings.hidden, 3 if settings.dueling else 2, nn.relu)
        clip = optax.clip_by_global_norm(settings.max_gradient_norm)
        # Its moments are one vector each, as motet's are: so the states can be compared.
        self.adam = optax.flatten(optax.chain(clip, optax.adam(settings.learning_rate, eps=settings.adam_epsilon)))

    def values(self, params: Any, observation: jax.Array) -> jax.Array:
        out = self.network.apply(params, observation)
        assert isinstance(out, jax.Array)
        if not self.settings.dueling:
            return out
        return out[:, :1] + out[:, 1:] - out[:, 1:].mean(-1, keepdims=True)

    @partial(jax.jit, static_argnums=0)
    def step(self, params: Any, epsilon: jax.Array, now: Now, key_act: Any, key_env: Any) -> tuple[Now, Steps]:
        best = jnp.argmax(self.values(params, self.world.observe(now.state)), -1)
        keys = jax.vmap(jax.random.split)(fold_all(key_act, len(best)))
        explores = jax.vmap(jax.random.uniform)(keys[:, 0]) < epsilon
        other = (jax.vmap(jax.random.bits)(keys[:, 1]) % 2).astype(best.dtype)
        return advance(self.world, now, jnp.where(explores, other, best), key_env)[:2]

    def errors(self, params: Any, target: Any, items: Items) -> jax.Array:
        rows = jnp.arange(len(items.action))
        choice = jnp.argmax(self.values(params, items.next_observation), -1)
        following = self.values(target, items.next_observation)[rows, choice]
        goal = items.reward + items.discount * jnp.where(items.terminated, 0, following)
        return self.values(params, items.observation)[rows, items.action] - jax.lax.stop_gradient(goal)

    @partial(jax.jit, static_argnums=0)
    def update(self, params: Any, target: Any, optimiser: Any, items: Items, weight: Any) -> tuple[Any, Any, Any]:
        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            errors = self.errors(params, target, items)
            within = jnp.clip(jnp.abs(errors), max=self.settings.huber)
            return jnp.mean(weight * (within**2 / 2 + within * (jnp.abs(errors) - within))), errors

        gradient, errors = jax.grad(loss, has_aux=True)(params)
        changes, optimiser = self.adam.update(gradient, optimiser, params)
        return optax.apply_updates(params, changes), optimiser, jnp.abs(errors)


def train(settings: Settings, world: World, seed: int, iterations: int) -> tuple[State, State]:
    """The states before and after so many iterations."""
    self, root = Reference(settings, world, iterations), jax.random.key(seed)
    params = self.network.init(named(root, "init/learner"), jnp.zeros(world.observation_size))
    first = state = State(params, params, self.adam.init(params), 0)
    now = begin(world, root, settings.num_envs)
    ring = Ring(settings.buffer_size, settings.num_envs, settings.train_frequency, settings.n_step, settings.discount)
    priorities = Priorities(ring, settings.alpha, settings.beta, iterations * settings.train_frequency)
    answered: tuple[Any, Any] = [], []

    def act(number: int, now: Now) -> Now:
        falling = max(1.0, settings.exploration * iterations * settings.gradient_steps)
        share = min(state.updates / falling, 1.0)
        epsilon = jnp.asarray(settings.first_epsilon + share * (settings.last_epsilon - settings.first_epsilon))
        for t in range(settings.train_frequency):
            keys = (address(root, node, number, t) for node in ("act", "env"))
            now, steps = self.step(state.params, epsilon, now, *keys)
            ring.add(steps)
        priorities.welcome()
        return now

    for round_ in range(math.ceil(settings.learning_starts / (settings.train_frequency * settings.num_envs))):
        now = act(PREFILL + round_, now)
    for iteration in range(iterations):
        now = act(iteration, now)
        for update in range(settings.gradient_steps):
            keys = fold_all(address(root, "sample", iteration, update), settings.batch_size)
            bits = np.asarray(jax.vmap(partial(jax.random.bits, dtype=jnp.uint32))(keys))
            priorities.update(*answered)  # what the last batch's errors were
            where, weight = priorities.draw(bits) if settings.prioritised else (ring.draw(bits), 1.0)
            params, optimiser, errors = self.update(*state[:3], ring.items(where), weight)
            updates = state.updates + 1
            target = params if updates % settings.target_period == 0 else state.target
            state, answered = State(params, target, optimiser, updates), (where, np.asarray(errors))
    return first, state
