"""The environment node: what a JAX environment must offer, and how episodes end and begin again.

A user's environment knows one environment and one episode. Everything that every environment needs alike is
here, once: the map over the environment axis, time limits, same-step automatic reset that keeps the true final
observation, and episode statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadEnvironment
from motet.flow.host import HostEnvironment, HostStep, Pool
from motet.flow.spaces import Space


class Environment:
    """One environment written in JAX. Subclass it, set the three attributes, write `reset` and `step`.

    `reset(key) -> (state, observation)` and `step(state, action, key) -> (state, observation, reward, terminated)`
    are pure functions of one environment; `state` is any pytree of arrays. Time limits are motet's business.

    One that can be seen also has `render(state) -> uint8 [height, width, 3]`, in NumPy, which training never calls.
    """

    observation_space: Space
    action_space: Space
    time_limit: int | None = None
    """Steps after which an episode is cut off (truncated), or None."""

    frames_per_second: int = 30
    """How fast a recording of it plays: a picture for each step."""

    name: str = "Environment"
    """What messages, displays and run folders call it; the class's own name unless it says another."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        raise NotImplementedError(f"{self.name} must define reset(self, key) -> (state, observation)")

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        raise NotImplementedError(
            f"{self.name} must define step(self, state, action, key) -> (state, observation, reward, terminated)"
        )

    def render(self, state: Any) -> np.ndarray:
        """A picture of one state, whose arrays are NumPy's: uint8 [height, width, 3]. All of one size."""
        raise BadEnvironment(
            f"{self.name} cannot draw itself: it has no render(self, state) -> uint8 [height, width, 3]."
        )


def check_environment(env: Environment | HostEnvironment) -> None:
    """Trace one reset and one step, and compare what they return with what the environment promises.

    What a host environment returns can only be looked at while it runs.
    """
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), Space):
            raise BadEnvironment(f"{env.name} must set {name} to a motet.Discrete, motet.Box or another space.")
    if isinstance(env, HostEnvironment):
        return
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, observation = _parts(env, "reset", ("state", "observation"), jax.eval_shape(env.reset, key))
    _agree(env, "reset", "observation", env.observation_space.aval, observation)
    result = jax.eval_shape(env.step, state, env.action_space.aval, key)
    after, observation, reward, terminated = _parts(
        env, "step", ("state", "observation", "reward", "terminated"), result
    )
    _agree(env, "step", "state", state, after)
    _agree(env, "step", "observation", env.observation_space.aval, observation)
    _agree(env, "step", "reward", jax.ShapeDtypeStruct((), jnp.result_type(float)), reward)
    _agree(env, "step", "terminated", jax.ShapeDtypeStruct((), bool), terminated)


def _parts(env: Environment, method: str, names: tuple[str, ...], result: Any) -> tuple[Any, ...]:
    if not isinstance(result, tuple) or len(result) != len(names):
        came = f"a tuple of {len(result)}" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise BadEnvironment(f"{env.name}.{method} must return ({', '.join(names)}), got {came}.")
    return result


_WHY = {"observation": ", as its observation_space says", "state": ", as its reset returns it"}


def _agree(env: Environment, method: str, what: str, expected: Any, got: Any) -> None:
    def show(tree: Any) -> str:
        return (
            ", ".join(f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in jax.tree.leaves(tree)) or "nothing"
        )

    same = jax.tree.structure(expected) == jax.tree.structure(got) and all(
        (a.shape, a.dtype) == (b.shape, b.dtype)
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True)
    )
    if not same:
        raise BadEnvironment(
            f"{env.name}.{method} must return {what} as {show(expected)}{_WHY.get(what, '')}; got {show(got)}."
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Episode:
    """The state of B environments, each in the middle of an episode."""

    state: Any  # [B, ...] the environment's own
    length: jax.Array  # [B] steps since the last reset
    total: jax.Array  # [B] sum of rewards since the last reset


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Step:
    """What one step of B environments gives. `observation` is what to act on next; after an episode's end it
    already belongs to the new episode, while `next_observation` is the true final observation of the old one."""

    observation: Any  # [B, ...]
    next_observation: Any  # [B, ...]
    reward: jax.Array  # [B]
    terminated: jax.Array  # [B] bool: the task itself ended, nothing follows
    truncated: jax.Array  # [B] bool: cut off, so the value of `next_observation` still counts
    first: jax.Array  # [B] bool: `observation` opens a new episode
    finished_return: jax.Array  # [B] the episode's return where it ended in this step, else 0
    finished_length: jax.Array  # [B] likewise its length


def begin(env: Environment, keys: jax.Array) -> tuple[Episode, Any, jax.Array]:
    """Reset B environments -> (episode, observation [B, ...], first [B])."""
    batch = keys.shape[0]
    state, observation = jax.vmap(env.reset)(keys)
    episode = Episode(state, jnp.zeros(batch, jnp.int32), jnp.zeros(batch))
    return episode, observation, jnp.ones(batch, bool)


def advance(
    env: Environment, episode: Episode, action: Any, keys: jax.Array | Callable[[], jax.Array]
) -> tuple[Episode, Step]:
    """Step B environments, resetting in the same step those whose episode ended.

    Where `keys` is a function, they are drawn only if something is random: an environment's step, or a reset.
    """
    draw = keys if callable(keys) else lambda: keys
    keys_step = jax.vmap(lambda key: jax.random.fold_in(key, 0))(draw())
    state, next_observation, reward, terminated = jax.vmap(env.step)(episode.state, action, keys_step)
    reward = reward.astype(episode.total.dtype)
    length, total = episode.length + 1, episode.total + reward
    limit = env.time_limit
    truncated = jnp.zeros_like(terminated) if limit is None else (length >= limit) & ~terminated
    done = terminated | truncated

    def renew() -> Any:
        fresh = jax.vmap(lambda key: env.reset(jax.random.fold_in(key, 1)))(draw())
        return jax.tree.map(lambda new, old: _where(done, new, old), fresh, (state, next_observation))

    def renew_if_any() -> Any:
        return jax.lax.cond(jnp.any(done), renew, lambda: (state, next_observation))

    # Most steps end no episode at all: on a CPU, no reset is computed then. Elsewhere the choice itself takes longer,
    # and among thousands of environments one nearly always ends.
    state, observation = jax.lax.platform_dependent(cpu=renew_if_any, default=renew)
    step = Step(
        observation=observation,
        next_observation=next_observation,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        first=done,
        finished_return=jnp.where(done, total, 0),
        finished_length=jnp.where(done, length, 0),
    )
    return Episode(state, jnp.where(done, 0, length), jnp.where(done, 0, total)), step


# The same for environments outside of XLA: their pool resets, NumPy counts.

HOST_FIELDS = (*Step.__dataclass_fields__, "finished", "valid", "restarts")
"""What a host environment's step gives: the fields of `Step`, which episodes came to their own end, which rows are
real, and how many workers died."""


def host_types(env: HostEnvironment, batch: int) -> tuple[Episode, tuple[Any, ...]]:
    """Zeros like the state of `batch` host environments and like what their step returns."""

    def full(aval: Any) -> jax.Array:
        return jnp.zeros((batch, *aval.shape), aval.dtype)

    observation = jax.tree.map(full, env.observation_space.aval)
    number, count, flag = jnp.zeros(batch), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, bool)
    step = Step(observation, observation, number, flag, flag, flag, number, count)
    fields = (getattr(step, name) for name in Step.__dataclass_fields__)
    return Episode((), count, number), (*fields, flag, flag, count)


def begin_host(pool: Pool) -> tuple[Any, ...]:
    """Reset B environments -> (lengths, totals, *observation, first), all of NumPy."""
    observation = pool.reset()
    batch = len(observation[0])
    zeros = np.zeros(batch, np.int32), np.zeros(batch, jnp.result_type(float))
    return (*zeros, *map(np.array, observation), np.ones(batch, bool))


def advance_host(step: HostStep, length: np.ndarray, total: np.ndarray) -> tuple[Any, ...]:
    """What a step of B environments comes to: (lengths, totals, *the leaves of HOST_FIELDS), NumPy's and nobody
    else's."""
    first, last = (tuple(map(np.array, leaves)) for leaves in step[:2])
    return settle(HostStep(first, last, *map(np.array, step[2:])), length, total, np)


def settle(step: HostStep, length: Any, total: Any, xp: Any) -> tuple[Any, ...]:
    """The same with the arrays as they are, of `xp`, which is NumPy or jax.numpy: what episodes come to is counted
    by whoever asked for the step."""
    reward = step.reward.astype(total.dtype)
    length, total = length + np.int32(1), total + reward
    done, invalid = step.terminated | step.truncated, ~step.valid
    over = done | invalid
    none = xp.zeros_like(total), xp.zeros_like(length)
    return (
        xp.where(over, none[1], length),
        xp.where(over, none[0], total),
        *step.observation,
        *step.next_observation,
        reward,
        step.terminated,
        # An end of its own outweighs a limit. A step that never came back ends its episode too: nothing may be
        # traced across it.
        (step.truncated & ~step.terminated) | invalid,
        over,
        xp.where(done, total, none[0]),
        xp.where(done, length, none[1]),
        done,
        step.valid,
        step.restarts,
    )


def _where(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)
