"""Soft actor-critic on Pendulum: two critics, a learned temperature, uniform replay."""

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
from tests.laws.references.ring import Items, Ring
from tests.laws.references.worlds import PREFILL, Now, Steps, World, address, advance, begin

HIGH = 2.0
"""Actions are from -2 to 2; networks see them from -1 to 1."""


@dataclass(frozen=True)
class Settings:
    """The options of a run, called as motet calls them."""

    num_envs: int
    train_frequency: int
    gradient_steps: int
    batch_size: int
    buffer_size: int
    learning_starts: int
    random_hold: int
    learning_rate: float
    discount: float
    target_rate: float
    temperature: float
    hidden: tuple[int, ...]


class Learned(NamedTuple):
    actor: Any
    critics: tuple[Any, Any]
    log_temperature: jax.Array  # []


class State(NamedTuple):
    params: Learned
    optimiser: Any
    target: tuple[Any, Any]
    updates: int


class Held(NamedTuple):
    """Random actions that are held for a while."""

    action: jax.Array  # [B, 1]
    is_held: jax.Array  # [B]


class Reference:
    """The functions of one run."""

    def __init__(self, settings: Settings, world: World):
        self.settings, self.world = settings, world
        self.actor = Layers(settings.hidden, 2, nn.relu, 0.01)
        self.critic = Layers(settings.hidden, 1, nn.relu)
        self.adam = optax.adam(settings.learning_rate)

    def init(self, key: jax.Array) -> State:
        key_actor, *keys_critic = jax.random.split(key, 3)
        blank = jnp.zeros(self.world.observation_size)
        critics = tuple(
            self.critic.init(jax.random.split(each)[1], jnp.zeros(self.world.observation_size + 1))
            for each in keys_critic
        )
        params = Learned(self.actor.init(key_actor, blank), critics, jnp.log(jnp.asarray(self.settings.temperature)))
        return State(params, self.adam.init(params), critics, 0)

    def choose(self, actor: Any, observation: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Actions from -1 to 1 [N, 1] and their log densities [N]."""
        out = self.actor.apply(actor, observation)
        assert isinstance(out, jax.Array)
        mean, log_std = out[:, 0], jnp.clip(out[:, 1], -20, 2)
        noise = jax.vmap(lambda key: jax.random.normal(key, (1,), mean.dtype))(keys)[:, 0]
        raw = mean + jnp.exp(log_std) * noise
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        # The density of tanh(raw) is that of raw over the slope, 1 - tanh(raw)^2 = 1 / cosh(raw)^2.
        log_cosh = jnp.logaddexp(raw, -raw) - math.log(2)
        return jnp.tanh(raw)[:, None], density + 2 * log_cosh

    def judge(self, critics: Any, observation: jax.Array, action: jax.Array) -> list[jax.Array]:
        both = jnp.concatenate([observation, action], -1)
        return [self.critic.apply(each, both)[..., 0] for each in critics]  # type: ignore[index]

    @partial(jax.jit, static_argnums=0)
    def step(
        self, actor: Any, random: Any, now: Now, held: Held, key_act: Any, key_env: Any
    ) -> tuple[Now, Held, Steps]:
        keys = jax.vmap(lambda key: jax.random.split(key, 3))(fold_all(key_act, self.settings.num_envs))
        drawn, _ = self.choose(actor, self.world.observe(now.state), keys[:, 0])
        fresh = jax.vmap(lambda key: jax.random.uniform(key, (1,), minval=-HIGH, maxval=HIGH))(keys[:, 1])
        keeps = held.is_held & (jax.vmap(jax.random.uniform)(keys[:, 2]) >= 1 / self.settings.random_hold)
        anyhow = jnp.where(keeps[:, None], held.action, fresh)
        now, steps, done = advance(self.world, now, jnp.where(random, anyhow, HIGH * drawn), key_env)
        return now, Held(anyhow, ~done), steps  # a new episode begins with nothing held

    def loss(self, params: Learned, target: Any, items: Items, keys: jax.Array) -> jax.Array:
        keys_next, keys_now = jax.vmap(jax.random.split, out_axes=1)(keys)
        temperature = jax.lax.stop_gradient(jnp.exp(params.log_temperature))
        following, density = self.choose(params.actor, items.next_observation, keys_next)
        value = jnp.minimum(*self.judge(target, items.next_observation, following)) - temperature * density
        goal = jax.lax.stop_gradient(items.reward + self.settings.discount * jnp.where(items.terminated, 0, value))
        values = self.judge(params.critics, items.observation, items.action / HIGH)
        critic_loss = sum(0.5 * jnp.mean((value - goal) ** 2) for value in values)
        action, density = self.choose(params.actor, items.observation, keys_now)
        liked = jnp.minimum(*self.judge(jax.lax.stop_gradient(params.critics), items.observation, action))
        actor_loss = jnp.mean(temperature * density - liked)
        # The entropy of one number between -1 and 1 should be -1.
        excess = jnp.mean(1 - jax.lax.stop_gradient(density))
        return critic_loss + actor_loss + params.log_temperature * excess

    @partial(jax.jit, static_argnums=0)
    def update(
        self, params: Learned, optimiser: Any, target: Any, items: Items, key: jax.Array
    ) -> tuple[Learned, Any, Any]:
        gradient = jax.grad(self.loss)(params, target, items, fold_all(key, self.settings.batch_size))
        changes, optimiser = self.adam.update(gradient, optimiser, params)
        params, rate = optax.apply_updates(params, changes), self.settings.target_rate
        assert isinstance(params, Learned)
        follow = jax.tree.map(lambda old, new: (1 - rate) * old + rate * new, target, params.critics)
        return params, optimiser, follow


def train(settings: Settings, world: World, seed: int, iterations: int) -> tuple[State, State]:
    """The states before and after so many iterations."""
    self, root = Reference(settings, world), jax.random.key(seed)
    first = state = self.init(named(root, "init/learner"))
    now = begin(world, root, settings.num_envs)
    held = Held(jnp.zeros((settings.num_envs, 1)), jnp.zeros(settings.num_envs, bool))
    ring = Ring(settings.buffer_size, settings.num_envs, settings.train_frequency, 1, settings.discount)

    def act(number: int, now: Now, held: Held) -> tuple[Now, Held]:
        for t in range(settings.train_frequency):
            keys = (address(root, node, number, t) for node in ("act", "env"))
            now, held, steps = self.step(state.params.actor, state.updates == 0, now, held, *keys)
            ring.add(steps)
        return now, held

    for round_ in range(math.ceil(settings.learning_starts / (settings.train_frequency * settings.num_envs))):
        now, held = act(PREFILL + round_, now, held)
    for iteration in range(iterations):
        now, held = act(iteration, now, held)
        for update in range(settings.gradient_steps):
            keys = fold_all(address(root, "sample", iteration, update), settings.batch_size)
            bits = np.asarray(jax.vmap(partial(jax.random.bits, dtype=jnp.uint32))(keys))
            key = address(root, "gradient", iteration, update)
            params, optimiser, target = self.update(*state[:3], ring.items(ring.draw(bits)), key)
            state = State(params, optimiser, target, state.updates + 1)
    return first, state
