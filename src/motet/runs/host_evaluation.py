"""Whole episodes of host environments, in the pools and with the limits of a training run."""

from __future__ import annotations

import os
import queue
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import EnvironmentTimeout
from motet.flow.algorithm import Spec
from motet.flow.host import UNSEEN, HostEnvironment, HostStep, Leaves, Opening, Pool, Waitable
from motet.runs.decide import Last, after, before, decide
from motet.runs.policy import Policy

SIDE_BY_SIDE = 16
"""The most host environments that are open at once in an evaluation."""
CLOSING = 10.0
"""Seconds that a pool without a time-out of its own may take to close."""


@dataclass(frozen=True)
class PlayLimits:
    """Where the environments of an evaluation run, how long it waits for them, and how much it forgives."""

    workers: int | None = None
    """Processes to step them in; 0: a thread of this one; None: one for each core."""
    step_timeout: float = 60.0
    restarts: int = 3
    first: int = UNSEEN
    """The index of the first of them."""

    def opening(self, count: int, seed: int) -> Opening:
        workers = min(os.cpu_count() or 1, count) if self.workers is None else self.workers
        return Opening(self.first, count, seed, workers, self.step_timeout, self.restarts)


Episodes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Returns, lengths, and whether each came to its end."""


def play(
    policy: Policy,
    env: HostEnvironment,
    episodes: int,
    seed: int,
    max_steps: int,
    limits: PlayLimits,
    explore: bool = False,
) -> Episodes:
    """Each environment plays its share, so that short episodes are no likelier to be counted than long ones."""
    slots = min(episodes, SIDE_BY_SIDE)
    share = np.asarray([episodes // slots + (slot < episodes % slots) for slot in range(slots)])
    played = _Played(slots, share, max_steps)
    pool = _opened(env, limits.opening(slots, seed))
    try:
        decide = _decider(policy, env, seed, explore)
        observation, first, count = pool.reset(), np.ones(slots, bool), 0
        reward, last = np.zeros(slots), before(policy.algorithm, env, slots)
        while not played.enough:
            action, last = decide(observation, first, reward, last, count)
            step = pool.step(action)
            reward = np.array(step.reward)
            count += 1
            observation, first = step.observation, step.terminated | step.truncated | ~step.valid
            played.add(step)
    finally:
        pool.close()
    return played.episodes()


def _opened(env: HostEnvironment, opening: Opening) -> Pool:
    """A pool that no environment can hang: its own workers see to it, or a thread that can be left."""
    if not opening.workers:
        return _Lane(partial(env.open, opening), env.name, opening.timeout)
    pool = env.open(opening)
    return pool if isinstance(pool, Waitable) else _Lane(lambda: pool, env.name, opening.timeout)


class _Lane:
    """A pool in a thread of its own, which opens, steps and closes it. One that hangs is left: it dies with the
    process."""

    def __init__(self, open_pool: Callable[[], Pool], name: str, timeout: float):
        self._name, self._timeout = name, timeout
        self._asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._hangs = False
        threading.Thread(target=self._run, name=f"motet evaluation of {name}", daemon=True).start()
        self._pool: Pool = self._ask("being made", open_pool)

    def reset(self) -> Leaves:
        return self._ask("resetting", self._pool.reset)

    def step(self, action: Leaves) -> HostStep:
        return self._ask("stepping", partial(self._pool.step, action))

    def close(self) -> None:
        if not self._hangs:
            self._timeout = CLOSING
            try:
                self._ask("closing", self._pool.close)
            except EnvironmentTimeout:  # what was played is not lost for it
                warnings.warn(
                    f"The environments of {self._name!r} have not closed within {CLOSING:g} s after an evaluation and "
                    "are left as they are. Their close() should return.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        self._asked.put(None)

    def _run(self) -> None:
        while (what := self._asked.get()) is not None:
            try:
                self._answers.put((what(), None))
            except BaseException as error:
                self._answers.put((None, error))

    def _ask(self, doing: str, what: Callable[[], Any]) -> Any:
        self._asked.put(what)
        try:
            answer, error = self._answers.get(timeout=self._timeout)
        except queue.Empty:
            self._hangs = True
            raise EnvironmentTimeout(
                f"After {self._timeout:g} s the environments of {self._name!r} are still {doing}, in an evaluation. "
                "If it may take that long, raise `step_timeout`."
            ) from None
        except BaseException:  # Ctrl-C: whoever closes must not wait for what is still going on
            self._hangs = True
            raise
        if error is not None:
            raise error
        return answer


def _decider(policy: Policy, env: HostEnvironment, seed: int, explore: bool) -> Any:
    """(observation, first, reward, last, count) -> (action, last), leaves of NumPy in and out."""
    algorithm, spec = policy.algorithm, policy.algorithm.spec
    treedef = jax.tree.structure(env.observation_space.aval)
    key = jax.random.key(seed)
    blank = before(algorithm, env, 1)

    def run(observation: Any, first: np.ndarray, reward: np.ndarray, last: Last, count: int) -> Any:
        tree = jax.tree.unflatten(treedef, [np.array(leaf) for leaf in observation])
        now = (policy.params, tree, first, reward, last, blank, key, count)
        action, last = _decided(algorithm, spec, explore, *now)
        return tuple(map(np.asarray, action)), last

    return run


@partial(jax.jit, static_argnums=(0, 1, 2))
def _decided(
    algorithm: Any,
    spec: Spec,
    explore: bool,
    params: Any,
    observation: Any,
    first: Any,
    reward: Any,
    last: Last,
    blank: Last,
    key: jax.Array,
    count: Any,
) -> Any:
    """Compiled once for all evaluations of a run. `spec` is not looked at: it tells two bound algorithms apart that are
    otherwise equal."""

    def renew(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    last = jax.tree.map(renew, blank, replace(last, reward=reward.astype(last.reward.dtype)))
    keys = jax.random.split(jax.random.fold_in(key, count), first.shape[0])
    decision = decide(algorithm, params, observation, keys, last, explore)
    return jax.tree.leaves(decision.action), after(last, decision, last.reward)


class _Played:
    """The episodes of some environments, of each as many as its share."""

    def __init__(self, slots: int, share: np.ndarray, max_steps: int):
        self.total, self.length = np.zeros(slots), np.zeros(slots, int)
        self.share, self.max_steps = share, max_steps
        self.done: list[list[tuple[float, int, bool]]] = [[] for _ in range(slots)]

    @property
    def enough(self) -> bool:
        return all(len(done) >= share for done, share in zip(self.done, self.share, strict=True))

    def add(self, step: HostStep) -> None:
        """Count one step. An episode whose worker died is forgotten: nobody knows how it ended."""
        over = step.terminated | step.truncated
        self.total += step.reward
        self.length += 1
        for slot in np.flatnonzero(over | ~step.valid | (self.length >= self.max_steps)):
            if step.valid[slot] and len(self.done[slot]) < self.share[slot]:
                self.done[slot].append((self.total[slot], self.length[slot], bool(over[slot])))
            self.total[slot], self.length[slot] = 0.0, 0

    def episodes(self) -> Episodes:
        rows = [row for done in self.done for row in done]
        returns, lengths, finished = zip(*rows, strict=True)
        return np.asarray(returns), np.asarray(lengths), np.asarray(finished)
