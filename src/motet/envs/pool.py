"""Every environment as a pool of NumPy arrays, those written in JAX included, so that one driver serves them all."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.environment import Environment, Episode, Step, advance, begin
from motet.flow.host import HostEnvironment, HostStep, Leaves, Opening, Pool


def open_pool(env: Environment | HostEnvironment, opening: Opening) -> Pool:
    """The environments that `opening` names. Whoever opens a pool closes it."""
    return env.open(opening) if isinstance(env, HostEnvironment) else JaxPool(env, opening)


class JaxPool:
    """B environments written in JAX. A key belongs to a seed, an environment's global number and a moment."""

    def __init__(self, env: Environment, opening: Opening):
        self._env, self._count = env, opening.count
        numbers = opening.first + jnp.arange(opening.count)
        self._roots = jax.vmap(partial(jax.random.fold_in, jax.random.key(opening.seed)))(numbers)
        self._actions = jax.tree.structure(env.action_space.aval)
        self._episode: Episode | None = None
        self._moment = 0

    def reset(self) -> Leaves:
        self._episode, observation = _begin(self._env, self._roots, self._next_moment())
        return _leaves(observation)

    def step(self, action: Leaves) -> HostStep:
        actions = jax.tree.unflatten(self._actions, action)
        self._episode, step = _advance(self._env, self._episode, actions, self._roots, self._next_moment())
        return HostStep(
            observation=_leaves(step.observation),
            next_observation=_leaves(step.next_observation),
            reward=np.asarray(step.reward),
            terminated=np.asarray(step.terminated),
            truncated=np.asarray(step.truncated),
            valid=np.ones(self._count, bool),
            restarts=np.zeros(self._count, np.int32),
        )

    def close(self) -> None:
        self._episode = None

    def _next_moment(self) -> np.uint32:
        self._moment += 1
        return np.uint32(self._moment)


@partial(jax.jit, static_argnums=0)
def _begin(env: Environment, roots: jax.Array, moment: jax.Array) -> tuple[Episode, Any]:
    episode, observation, _ = begin(env, _keys(roots, moment))
    return episode, observation


@partial(jax.jit, static_argnums=0)
def _advance(
    env: Environment, episode: Episode, action: Any, roots: jax.Array, moment: jax.Array
) -> tuple[Episode, Step]:
    return advance(env, episode, action, _keys(roots, moment))


def _keys(roots: jax.Array, moment: jax.Array) -> jax.Array:
    return jax.vmap(lambda root: jax.random.fold_in(root, moment))(roots)


def _leaves(tree: Any) -> Leaves:
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(tree))
