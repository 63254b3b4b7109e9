"""How good a policy is: whole episodes without exploration, many at once, each at most so many steps long."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet import bounds
from motet.errors import BadOption
from motet.flow.algorithm import Spec
from motet.flow.environment import Environment, advance, begin
from motet.flow.host import HostEnvironment
from motet.flow.spaces import Box, Dict, Space, Tuple
from motet.runs.decide import after, before, decide
from motet.runs.host_evaluation import PlayLimits, play
from motet.runs.policy import Policy


@dataclass(frozen=True)
class Evaluation:
    """The episodes that were played."""

    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] bool: False where the step limit cut an endless episode
    outside: bounds.Outside = field(default_factory=bounds.Outside)
    """Observations outside of the bounds that their space declares."""

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    def __str__(self) -> str:
        cut = int((~self.finished).sum())
        note = f", {cut} cut off by the step limit" if cut else ""
        return f"return {self.mean:.1f} ± {self.returns.std():.1f} over {len(self.returns)} episodes{note}"


def evaluate(
    policy: Policy,
    env: Environment | HostEnvironment,
    *,
    episodes: int = 64,
    seed: int = 0,
    max_steps: int = 10_000,
    explore: bool = False,
    workers: int | None = None,
    step_timeout: float = 60.0,
    restarts: int = 3,
) -> Evaluation:
    """Play `episodes` episodes side by side: without exploration, or with `explore` as in training.

    Host environments run in `workers` processes, by default one for each core, or with 0 in a thread of this one. A
    step of them may take `step_timeout` seconds, and dead workers are started anew `restarts` times.
    """
    if not isinstance(policy, Policy):
        raise BadOption(f"policy must be a motet.Policy, such as the policy of a result, got {policy!r}.")
    if episodes < 1:
        raise BadOption(f"episodes must be at least 1, got {episodes}")
    if isinstance(env, HostEnvironment | Environment):
        check_task(policy, env)
    if isinstance(env, HostEnvironment):
        bounds.take(env)  # what others saw
        limits = PlayLimits(workers, step_timeout, restarts)
        return Evaluation(*play(policy, env, episodes, seed, max_steps, limits, explore), outside=bounds.take(env))
    if not isinstance(env, Environment):
        raise BadOption(f"env must be an environment, got {env!r}; motet.make(id) makes one of a name.")
    returns, lengths, done = _play(
        policy.algorithm, policy.algorithm.spec, env, episodes, max_steps, explore, policy.params, jax.random.key(seed)
    )
    return Evaluation(np.asarray(returns), np.asarray(lengths), np.asarray(done))


def check_task(policy: Policy, env: Environment | HostEnvironment) -> None:
    """A policy serves environments of the spaces it was trained for; their bounds may differ."""
    spec = policy.algorithm.spec
    for what, trained, found in (
        ("observations", spec.observation_space, env.observation_space),
        ("actions", spec.action_space, env.action_space),
    ):
        if not _alike(trained, found):
            raise BadOption(
                f"The policy was trained for {what} of {trained}, but {env.name} has {found}. Evaluate it on an "
                "environment like the one of its training."
            )


def _alike(one: Space, other: Space) -> bool:
    if isinstance(one, Box) and isinstance(other, Box):
        return one.aval == other.aval
    if isinstance(one, Dict) and isinstance(other, Dict):
        pairs = zip(one.items, other.items, strict=False)
        return len(one.items) == len(other.items) and all(a == b and _alike(x, y) for (a, x), (b, y) in pairs)
    if isinstance(one, Tuple) and isinstance(other, Tuple):
        return len(one.spaces) == len(other.spaces) and all(map(_alike, one.spaces, other.spaces))
    return one == other


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _play(
    algorithm: Any,
    spec: Spec,
    env: Environment,
    episodes: int,
    max_steps: int,
    explore: bool,
    params: Any,
    key: jax.Array,
) -> Any:
    # `spec` is not looked at: it tells two bound algorithms apart that are otherwise equal.
    last = before(algorithm, env, episodes)
    keys = jax.random.split(jax.random.fold_in(key, 0), episodes)
    episode, observation, _ = begin(env, keys)
    zero = jnp.zeros(episodes, episode.total.dtype)

    def more(carry: Any) -> jax.Array:
        count, _, _, _, _, _, done = carry
        return (count < max_steps) & ~jnp.all(done)

    def step(carry: Any) -> Any:
        count, episode, observation, last, returns, lengths, done = carry
        keys = jax.random.split(jax.random.fold_in(key, count + 1), episodes)
        decision = decide(algorithm, params, observation, keys, last, explore)
        episode, now = advance(env, episode, decision.action, keys)
        returns = returns + jnp.where(done, 0, now.reward)
        lengths = lengths + jnp.where(done, 0, 1)
        last = after(last, decision, now.reward)
        return count + 1, episode, now.observation, last, returns, lengths, done | now.first

    first = (0, episode, observation, last, zero, jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool))
    _, _, _, _, returns, lengths, done = jax.lax.while_loop(more, step, first)
    return returns, lengths, done
