"""Environments of EnvPool, stepped in batches by native threads: `envpool/Pong-v5`.

EnvPool by itself resets in the step after an episode's end, which ignores its action. Here finished environments are
reset in the step that ended them, by a partial reset, so that no such step exists.

EnvPool raises one flag at a time: an episode whose task ends in the very step of its time limit counts as truncated.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from threading import Lock
from typing import Any

import jax
import numpy as np

from motet.bounds import RECORD, Bounds, Outside, Tally, note
from motet.envs.families import library
from motet.envs.gymnasium import convert_space
from motet.errors import BadEnvironment, UnknownName
from motet.flow.host import HostEnvironment, HostStep, Leaves, Opening, Pool
from motet.flow.spaces import Box, Dict, Space, parts

LARGEST_SEED = 2**31 - 1


def ids() -> list[str]:
    return library("envpool").list_all_envs()


@dataclass(frozen=True)
class EnvPool(HostEnvironment):
    """One of EnvPool's tasks for a single player, with its default settings or others."""

    id: str
    """As in envpool.list_all_envs()."""
    max_episode_steps: int | None = None
    """Steps after which an episode is cut off; None: as the task says."""
    options: tuple[tuple[str, Any], ...] = ()
    """Other settings of the task by name, such as (("img_height", 52), ("img_width", 52))."""
    check_bounds: bool = False
    """Whether an observation outside of its bounds is an error, or only counted."""
    outside: Tally = field(default_factory=Tally, init=False, repr=False, compare=False)
    code: str = field(init=False, repr=False, compare=False)
    light: bool = field(default=True, init=False, repr=False, compare=False)
    _types: tuple[np.dtype, ...] = field(init=False, repr=False, compare=False)
    """Of the leaves of observations, as motet holds them."""

    def __post_init__(self) -> None:
        envpool = library("envpool")
        if self.id not in envpool.list_all_envs():
            raise UnknownName("EnvPool task", self.id, envpool.list_all_envs())
        try:
            spec = envpool.make_spec(self.id, **self._options())
        except (ImportError, RuntimeError, TypeError, AssertionError, ValueError) as error:
            raise BadEnvironment(f"envpool/{self.id} cannot be made: {error}") from error
        name = f"envpool/{self.id}"
        if spec.config.max_num_players > 1 or len(spec.action_array_spec) != 3:
            raise BadEnvironment(
                f"{name} has several players, or an action of several parts; one player and one array are supported."
            )
        with _quiet():
            observation_space = _mended(convert_space(spec.gymnasium_observation_space))
            action_space = _mended(convert_space(spec.gymnasium_action_space))
        values = {
            "name": name,
            "observation_space": observation_space,
            "action_space": action_space,
            "time_limit": int(spec.config.max_episode_steps),
            "code": f"envpool {metadata.version('envpool')}",  # its pool is opaque
            "_types": tuple(leaf.dtype for leaf in jax.tree.leaves(observation_space.aval)),
        }
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    def _options(self) -> dict[str, Any]:
        limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
        return {**dict(self.options), **limit}

    def open(self, opening: Opening) -> Pool:
        """A pool with as many threads as the opening has workers, at least one."""
        seeds = [opening.seed_of(index) & LARGEST_SEED for index in range(opening.count)]
        threads = min(max(opening.workers, 1), opening.count)
        pool = library("envpool").make_gymnasium(
            self.id, num_envs=opening.count, num_threads=threads, seed=seeds, **self._options()
        )
        with _quiet():
            pool.observation_space  # noqa: B018 - it is made when it is first read, with a warning
        return EnvPoolPool(self, pool)


class EnvPoolPool:
    """B environments of one EnvPool."""

    def __init__(self, env: EnvPool, pool: Any):
        self._pool, self._count = pool, len(pool)
        self._name, self._types = env.name, env._types
        # As in Gymnasium's adapter, an action outside of its bounds is clipped.
        self._check_bounds, self._tally, self._record = env.check_bounds, env.outside, np.zeros(RECORD)
        self._declared = _declared(env.observation_space)
        self._bounds = env.action_space.bounds if isinstance(env.action_space, Box) else None

    def reset(self) -> Leaves:
        return self._leaves(*self._open().reset())

    def step(self, action: Leaves) -> HostStep:
        observation, reward, terminated, truncated, info = self._open().step(self._bounded(action[0]))
        order = np.argsort(info["env_id"])
        ended = np.flatnonzero((terminated | truncated)[order]).astype(np.int32)
        next_observation = self._leaves(observation, info)
        current = next_observation
        self._finite("a reward", reward)
        if ended.size:
            current = tuple(leaf.copy() for leaf in next_observation)
            for leaf, fresh in zip(current, self._leaves(*self._open().reset(ended)), strict=True):
                leaf[ended] = fresh
        return HostStep(
            observation=current,
            next_observation=next_observation,
            reward=reward[order],
            terminated=terminated[order],
            truncated=truncated[order],
            valid=np.ones(self._count, bool),
            restarts=np.zeros(self._count, np.int32),
        )

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            self._tally.add(Outside.read(self._record, self._declared))
            pool.close()

    def _open(self) -> Any:
        if self._pool is None:
            raise BadEnvironment("This pool of environments is closed; open another.")
        return self._pool

    def _bounded(self, action: np.ndarray) -> np.ndarray:
        return action if self._bounds is None else np.clip(action, *self._bounds)

    def _leaves(self, observation: Any, info: Any) -> Leaves:
        """Observations in the order of their environments, in arrays that belong to nobody else."""
        order = np.argsort(info["env_id"])
        leaves = tuple(
            np.asarray(leaf)[order].astype(dtype, copy=False)
            for leaf, dtype in zip(jax.tree.leaves(observation), self._types, strict=True)
        )
        for number, leaf in enumerate(leaves):
            self._finite("an observation", leaf)
            self._within(number, leaf)
        return leaves

    def _within(self, number: int, leaf: np.ndarray) -> None:
        bounds = self._declared[number]
        outside = (leaf < bounds.low - ROUNDING) | (leaf > bounds.high + ROUNDING)
        if not outside.any():
            return
        note(self._record, number, bounds, leaf, outside)
        if self._check_bounds:
            raise BadEnvironment(f"{self._name}: {Outside.read(self._record, self._declared)}.")

    def _finite(self, what: str, array: np.ndarray) -> None:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadEnvironment(f"{self._name} gave {what} that is not finite.")


ROUNDING = 1e-6


def _declared(space: Space) -> list[Bounds]:
    """The bounds of each part of an observation; what is no Box cannot leave them."""
    boxes = [part if isinstance(part, Box) else Box(-np.inf, np.inf, part.aval.shape) for part in parts(space)]
    names = [""] if not isinstance(space, Dict) else [f'["{name}"]' for name, _ in space.items]
    names = names if len(names) == len(boxes) else [f"[{number}]" for number in range(len(boxes))]
    return [Bounds(f"the observation{name}", *box.bounds) for name, box in zip(names, boxes, strict=True)]


SMALLEST = float(np.finfo(np.float64).tiny)


def _mended(space: Space) -> Space:
    """With lower bounds as they are meant: EnvPool writes the smallest positive number where there is no bound."""
    if isinstance(space, Dict):
        return Dict({name: _mended(part) for name, part in space.items})
    if isinstance(space, Box) and space.low == SMALLEST:
        return replace(space, low=-float("inf"))
    return space


_LOCK = Lock()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide that EnvPool gives Gymnasium bounds of a wider type. Filters are the whole process's, hence the lock."""
    with _LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield
