"""How good a policy is: whole episodes without exploration, many at once, each at most so many steps long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet import bounds
from motet.errors import BadOption
from motet.flow.algorithm import Spec
from motet.flow.environment import Environment, advance, begin
from motet.flow.host import HostEnvironment, Opening
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
) -> Evaluation:
    """Play `episodes` episodes side by side."""
    if isinstance(env, HostEnvironment):
        return _play_on_host(policy, env, episodes, seed, max_steps)
    if not isinstance(env, Environment):
        raise BadOption(f"env must be an environment, got {env!r}; motet.make(id) makes one of a name.")
    returns, lengths, done = _play(
        policy.algorithm, policy.algorithm.spec, env, episodes, max_steps, policy.params, jax.random.key(seed)
    )
    return Evaluation(np.asarray(returns), np.asarray(lengths), np.asarray(done))


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _play(
    algorithm: Any, spec: Spec, env: Environment, episodes: int, max_steps: int, params: Any, key: jax.Array
) -> Any:
    # `spec` is not looked at: it tells two bound algorithms apart that are otherwise equal.
    memory = _each(algorithm.memory(), episodes)
    keys = jax.random.split(jax.random.fold_in(key, 0), episodes)
    episode, observation, _ = begin(env, keys)
    zero = jnp.zeros(episodes, episode.total.dtype)

    def more(carry: Any) -> jax.Array:
        count, _, _, _, _, _, done = carry
        return (count < max_steps) & ~jnp.all(done)

    def step(carry: Any) -> Any:
        count, episode, observation, memory, returns, lengths, done = carry
        keys = jax.random.split(jax.random.fold_in(key, count + 1), episodes)
        decision = jax.vmap(partial(algorithm.exploit, params))(memory, observation, keys)
        episode, now = advance(env, episode, decision.action, keys)
        returns = returns + jnp.where(done, 0, now.reward)
        lengths = lengths + jnp.where(done, 0, 1)
        return count + 1, episode, now.observation, decision.memory, returns, lengths, done | now.first

    first = (0, episode, observation, memory, zero, jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool))
    _, _, _, _, returns, lengths, done = jax.lax.while_loop(more, step, first)
    return returns, lengths, done


def _each(memory: Any, count: int) -> Any:
    """The same memory for `count` environments."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), memory)


SIDE_BY_SIDE = 16
"""The most host environments that are open at once in an evaluation."""
UNSEEN = 1_000_000
"""The index of an evaluation's first host environment: no training reaches it, so it starts from states of its own."""


def _play_on_host(policy: Policy, env: HostEnvironment, episodes: int, seed: int, max_steps: int) -> Evaluation:
    """The same with environments that are stepped here. Each plays its share, so that short episodes are no likelier
    to be counted than long ones."""
    slots = min(episodes, SIDE_BY_SIDE)
    share = np.asarray([episodes // slots + (slot < episodes % slots) for slot in range(slots)])
    played = _Played(slots, share, max_steps)
    bounds.take(env)  # what others saw
    pool = env.open(Opening(UNSEEN, slots, seed))
    try:
        decide = _decider(policy, env, seed)
        observation, first, memory = pool.reset(), np.ones(slots, bool), None
        for count in range(max_steps * int(share.max())):
            action, memory = decide(observation, first, memory, count)
            step = pool.step(action)
            observation, first = step.observation, step.terminated | step.truncated | ~step.valid
            if played.add(step.reward, first):
                break
    finally:
        pool.close()
    return replace(played.evaluation(), outside=bounds.take(env))


def _decider(policy: Policy, env: HostEnvironment, seed: int) -> Any:
    """(observation, first, memory, count) -> (action, memory), leaves of NumPy in and out."""
    algorithm, params = policy.algorithm, policy.params
    treedef = jax.tree.structure(env.observation_space.aval)
    key = jax.random.key(seed)

    @jax.jit
    def decide(params: Any, observation: Any, first: jax.Array, memory: Any, count: jax.Array) -> Any:
        blank = algorithm.memory()

        def renew(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        memory = jax.tree.map(renew, blank, memory)
        keys = jax.random.split(jax.random.fold_in(key, count), first.shape[0])
        decision = jax.vmap(partial(algorithm.exploit, params))(memory, observation, keys)
        return jax.tree.leaves(decision.action), decision.memory

    def run(observation: Any, first: np.ndarray, memory: Any, count: int) -> Any:
        if memory is None:
            memory = _each(algorithm.memory(), len(first))
        tree = jax.tree.unflatten(treedef, [np.array(leaf) for leaf in observation])
        action, memory = decide(params, tree, first, memory, count)
        return tuple(map(np.asarray, action)), memory

    return run


class _Played:
    """The episodes of some environments, of each as many as its share."""

    def __init__(self, slots: int, share: np.ndarray, max_steps: int):
        self.total, self.length = np.zeros(slots), np.zeros(slots, int)
        self.share, self.max_steps = share, max_steps
        self.done: list[list[tuple[float, int, bool]]] = [[] for _ in range(slots)]

    def add(self, reward: np.ndarray, over: np.ndarray) -> bool:
        """Count one step -> whether everyone has played enough."""
        self.total += reward
        self.length += 1
        for slot in np.flatnonzero(over | (self.length >= self.max_steps)):
            if len(self.done[slot]) < self.share[slot]:
                self.done[slot].append((self.total[slot], self.length[slot], bool(over[slot])))
            self.total[slot], self.length[slot] = 0.0, 0
        return all(len(done) >= share for done, share in zip(self.done, self.share, strict=True))

    def evaluation(self) -> Evaluation:
        rows = [row for done in self.done for row in done]
        returns, lengths, finished = zip(*rows, strict=True)
        return Evaluation(np.asarray(returns), np.asarray(lengths), np.asarray(finished))
