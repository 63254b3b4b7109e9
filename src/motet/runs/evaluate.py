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
from motet.flow.algorithm import Algorithm, Decision, Spec, besides, exploits
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
    last = _before(algorithm, env, episodes)
    keys = jax.random.split(jax.random.fold_in(key, 0), episodes)
    episode, observation, _ = begin(env, keys)
    zero = jnp.zeros(episodes, episode.total.dtype)

    def more(carry: Any) -> jax.Array:
        count, _, _, _, _, _, done = carry
        return (count < max_steps) & ~jnp.all(done)

    def step(carry: Any) -> Any:
        count, episode, observation, last, returns, lengths, done = carry
        keys = jax.random.split(jax.random.fold_in(key, count + 1), episodes)
        decision = _decide(algorithm, params, observation, keys, last)
        episode, now = advance(env, episode, decision.action, keys)
        returns = returns + jnp.where(done, 0, now.reward)
        lengths = lengths + jnp.where(done, 0, 1)
        last = _after(last, decision, now.reward)
        return count + 1, episode, now.observation, last, returns, lengths, done | now.first

    first = (0, episode, observation, last, zero, jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool))
    _, _, _, _, returns, lengths, done = jax.lax.while_loop(more, step, first)
    return returns, lengths, done


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Last:
    """What a policy may know of the step before, of B environments."""

    memory: Any
    reward: Any
    action: Any


def _before(algorithm: Algorithm, env: Environment | HostEnvironment, count: int) -> _Last:
    """What is known before the first step."""

    def each(leaf: Any) -> jax.Array:
        return jnp.broadcast_to(leaf, (count, *jnp.shape(leaf)))

    action = jax.tree.map(lambda aval: jnp.zeros((count, *aval.shape), aval.dtype), env.action_space.aval)
    return _Last(jax.tree.map(each, algorithm.memory()), jnp.zeros(count), action)


def _after(last: _Last, decision: Decision, reward: Any) -> _Last:
    action = jax.tree.map(lambda old, new: new.astype(old.dtype), last.action, decision.action)
    return _Last(decision.memory, reward.astype(last.reward.dtype), action)


def _decide(algorithm: Algorithm, params: Any, observation: Any, keys: jax.Array, last: _Last) -> Decision:
    """The policy's decisions for B environments. One beyond the algorithm's number decides like one of them."""
    decide = exploits(algorithm)
    index = jnp.arange(keys.shape[0], dtype=jnp.int32) % algorithm.num_envs
    known = {"index": index, "reward": last.reward, "action": last.action}
    more = {name: known[name] for name in besides(algorithm, decide)}
    return jax.vmap(partial(decide, params))(last.memory, observation, keys, **more)


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
        observation, first, reward = pool.reset(), np.ones(slots, bool), np.zeros(slots)
        last = _before(policy.algorithm, env, slots)
        for count in range(max_steps * int(share.max())):
            action, last = decide(observation, first, reward, last, count)
            step = pool.step(action)
            observation, first = step.observation, step.terminated | step.truncated | ~step.valid
            reward = np.array(step.reward)
            if played.add(step.reward, first):
                break
    finally:
        pool.close()
    return replace(played.evaluation(), outside=bounds.take(env))


def _decider(policy: Policy, env: HostEnvironment, seed: int) -> Any:
    """(observation, first, reward, last, count) -> (action, last), leaves of NumPy in and out."""
    algorithm, params = policy.algorithm, policy.params
    treedef = jax.tree.structure(env.observation_space.aval)
    key = jax.random.key(seed)
    blank = _before(algorithm, env, 1)

    @jax.jit
    def decide(params: Any, observation: Any, first: Any, reward: Any, last: _Last, count: Any) -> Any:
        def renew(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        last = jax.tree.map(renew, blank, replace(last, reward=reward.astype(last.reward.dtype)))
        keys = jax.random.split(jax.random.fold_in(key, count), first.shape[0])
        decision = _decide(algorithm, params, observation, keys, last)
        return jax.tree.leaves(decision.action), _after(last, decision, last.reward)

    def run(observation: Any, first: np.ndarray, reward: np.ndarray, last: _Last, count: int) -> Any:
        tree = jax.tree.unflatten(treedef, [np.array(leaf) for leaf in observation])
        action, last = decide(params, tree, first, reward, last, count)
        return tuple(map(np.asarray, action)), last

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
