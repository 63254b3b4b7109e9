"""Episodes to look at: the policy acts as in an evaluation of the same seed, and every state is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadOption
from motet.flow.environment import Environment
from motet.runs.decide import after, before, decide
from motet.runs.policy import Policy

PAUSE = 0.6
"""Seconds that the last picture of an episode is shown."""


@dataclass(frozen=True)
class Recording:
    """A film of some episodes."""

    path: Path
    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] bool: False where the step limit cut an episode
    frames_per_second: float

    def __str__(self) -> str:
        each = ", ".join(f"{value:.1f}" for value in self.returns)
        cut = int((~self.finished).sum())
        note = f"; {cut} cut off by the step limit" if cut else ""
        return f"{self.path}: {len(self.returns)} episodes, return {each}{note}"


@dataclass(frozen=True)
class Played:
    """Episodes of an environment in JAX, and all of their states."""

    states: list[Any]  # of each moment, those of all episodes [episodes, ...]
    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray

    def pictures(self, env: Environment) -> Iterator[list[np.ndarray]]:
        """Each episode's, from its first state to its last."""
        for episode, length in enumerate(self.lengths):
            moments = self.states[: length + 1]
            yield [env.render(jax.tree.map(lambda leaf: leaf[episode], state)) for state in moments]  # noqa: B023


def play(policy: Policy, env: Environment, episodes: int, seed: int, max_steps: int) -> Played:
    """The episodes that an evaluation of that seed plays, with their states."""
    algorithm, key = policy.algorithm, jax.random.key(seed)
    limit = max_steps if env.time_limit is None else min(max_steps, env.time_limit)

    @jax.jit
    def start() -> Any:
        keys = jax.random.split(jax.random.fold_in(key, 0), episodes)
        return *jax.vmap(env.reset)(keys), before(algorithm, env, episodes)

    @jax.jit
    def step(params: Any, count: Any, state: Any, observation: Any, last: Any) -> Any:
        keys = jax.random.split(jax.random.fold_in(key, count + 1), episodes)
        decision = decide(algorithm, params, observation, keys, last)
        keys_step = jax.vmap(lambda each: jax.random.fold_in(each, 0))(keys)
        state, observation, reward, terminated = jax.vmap(env.step)(state, decision.action, keys_step)
        reward = reward.astype(jnp.result_type(float))
        return state, observation, after(last, decision, reward), reward, terminated

    state, observation, last = start()
    states = [jax.device_get(state)]
    returns, lengths = np.zeros(episodes), np.zeros(episodes, int)
    done = np.zeros(episodes, bool)
    for count in range(limit):
        state, observation, last, reward, terminated = step(policy.params, count, state, observation, last)
        states.append(jax.device_get(state))
        returns += np.where(done, 0, np.asarray(reward))
        lengths += ~done
        done |= np.asarray(terminated)
        if done.all():
            break
    finished = done | (env.time_limit is not None and limit == env.time_limit)
    return Played(states, returns, lengths, finished)


def check(episodes: int, max_steps: int) -> None:
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise BadOption(f"{name} must be at least 1, got {value}")
