"""Algorithms and an environment that write down which version of a value they were given.

They come from outside of the package and learn nothing. The learner state is a clock that counts its own updates; the
policy is the time it shows, and so is every action. An environment keeps all actions it was ever given. So how old
each value was is read off contents, whatever the engine says of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import motet

STEPS, ENVS = 2, 4


@dataclass(frozen=True)
class Diary(motet.Environment):
    """Writes down every action. Its episodes never end."""

    pages: int = 1
    observation_space: motet.Box = motet.Box(0, 1e9, (1,))
    action_space: motet.Discrete = motet.Discrete(2**30)

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state = jnp.full(self.pages, -1, jnp.int32), jnp.zeros((), jnp.int32)
        return state, jnp.zeros(1)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        pages, count = state
        after = pages.at[count].set(action), count + 1
        return after, count[None].astype(float), jnp.ones(()), jnp.zeros((), bool)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Time:
    """How often the learner state has changed, and what was seen before each change."""

    updates: jax.Array  # []
    seen: jax.Array  # [updates of the run, 2] a mean over the batch, and that of its square


@dataclass(frozen=True, kw_only=True)
class Clock(motet.Algorithm):
    """Counts. With `rounds`, learning is a loop of so many epochs and minibatches; else it is one step."""

    max_lag = None
    num_envs: int = ENVS
    rounds: tuple[int, int] | None = None

    @property
    def updates(self) -> int:
        """In an iteration."""
        return int(np.prod(self.rounds)) if self.rounds else 1

    def init(self, key: jax.Array) -> Time:
        return Time(jnp.zeros((), jnp.int32), jnp.zeros((self.spec.iterations * self.updates, 2)))

    def policy(self, state: Time) -> jax.Array:
        return state.updates

    def act(self, policy: jax.Array, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(policy)

    def look(self, time: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The time that whoever computes gradients has. Each row says it, as each has its loss, since what is the same
        in all pieces of a batch would come from one of them. Every reward is 1."""
        return note(jnp.where(batch > 0, time, -1))

    def tick(self, state: Time, mean: jax.Array, square: jax.Array) -> Time:
        seen = state.seen.at[state.updates].set(jnp.stack([mean, square]))
        return Time(state.updates + 1, seen)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        if self.rounds is None:
            flow.apply(self.tick, *flow.call(self.look, rollout.reward))
            return
        epochs, count = self.rounds
        with flow.minibatches(rollout.reward, epochs=epochs, count=count) as reward:
            flow.apply(self.tick, *flow.call(self.look, reward))


def note(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean, and that of squares. Where the second is the first one's square, all values were the same."""
    values = values.astype(float)
    return jnp.mean(values), jnp.mean(values**2)


class Telling(motet.Prioritised):
    """Tells with each draw the largest priority that has reached it so far, in place of a weight."""

    def sample(self, state: Any, *values: Any, **options: Any) -> Any:
        drawn = super().sample(state, *values, **options)
        return replace(drawn, weight=jnp.broadcast_to(jnp.max(state.priorities.largest), drawn.weight.shape))


FIRST_PRIORITY = 1
"""The largest priority that a replay knows before it was given any."""


@dataclass(frozen=True, kw_only=True)
class Echo(Clock):
    """Gives what it draws in update u the priority u + 2, and sees in each draw which of them have arrived."""

    rounds: tuple[int, int] | None = (1, 3)

    @property
    def replay(self) -> motet.Prioritised:
        return Telling(64, alpha=1.0, epsilon=0.0)

    def answer(self, time: jax.Array, weight: jax.Array) -> tuple[jax.Array, ...]:
        return *note(weight), jnp.broadcast_to(time.astype(float) + FIRST_PRIORITY + 1, weight.shape)

    def loop(self, flow: motet.Flow) -> None:
        steps = flow.unroll(self.act, steps=STEPS)
        flow.remember(steps.transitions, into=self.replay)
        with flow.repeat(self.updates):
            sample = flow.sample(8)
            mean, square, priorities = flow.call(self.answer, sample.weight)
            flow.apply(self.tick, mean, square)
            flow.reprioritize(sample, priorities)
