"""Environments that one thread steps one after the other: the core of every pool, in the caller or in a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from motet.envs.actions import Actions
from motet.envs.checks import BOOLS, FLOATS, HELD, Observations, copied, write_flags, write_rewards
from motet.envs.form import Form, Make, check_same_spaces
from motet.envs.quick_spaces import quicken
from motet.envs.slots import Slot
from motet.errors import BadEnvironment, EnvironmentFailed, MotetError, described, is_ctrl_c
from motet.flow.host import numbered


@dataclass(frozen=True)
class Seats:
    """Which environments of a run a group holds."""

    first: int
    """The number of its first environment in the run."""
    seeds: tuple[int, ...]
    """One seed for each of its environments."""


class Group(Protocol):
    """Some environments, stepped together. What they return is written into a slot."""

    def reset(self, out: Slot) -> None: ...

    def step(self, out: Slot) -> None:
        """Step with the slot's actions; what ended is reset within the step."""
        ...

    def close(self) -> None: ...


At = list[int] | memoryview
"""One number: the row that a group is working on, so that others can tell which environment hangs."""

Build = Callable[[Seats, At, np.ndarray], Group]
"""Makes a group, which keeps the number up to date, and a record of observations outside of bounds."""


class Given(NamedTuple):
    """What environments returned from a step: a value for each, column by column."""

    observations: list[Any]
    """`HELD` for one that is in its row already."""
    rewards: list[Any]
    terminated: list[Any]
    truncated: list[Any]


class Singles:
    """A group of single Gymnasium environments."""

    def __init__(self, make: Make, form: Form, piece: Seats, at: At, record: np.ndarray):
        self.form, self.piece, self.at = form, piece, at
        self.observations, self.actions = Observations(form, record), Actions(form)
        self.length = np.zeros(len(piece.seeds), np.int64)
        """[B] steps since the last reset, for messages."""
        self.envs: list[gymnasium.Env] = []
        try:
            for row in range(len(piece.seeds)):
                self.envs.append(self._make(make, row))
        except BaseException:
            self.close()
            raise
        cores, limits = zip(*map(_peel, self.envs), strict=True)
        self.steps, self.resets = [core.step for core in cores], [core.reset for core in cores]
        self.limits = np.asarray(limits)
        """[B] after how many steps an episode is cut off."""
        self.to_limit = 0
        """Steps before which none of them can be."""
        self.seeds: list[int | None] = list(piece.seeds)

    def reset(self, out: Slot) -> None:
        with np.errstate(over="ignore"):
            self._reset_rows(list(range(len(self.envs))), out)
        for first, last in zip(out.observation, out.next_observation, strict=True):
            np.copyto(last, first)

    def step(self, out: Slot) -> None:
        some_ended = self._step_all(out)
        for first, last in zip(out.observation, out.next_observation, strict=True):
            np.copyto(first, last)
        if some_ended:
            with np.errstate(over="ignore"):  # What overflows is found by the checks.
                self._reset_rows((out.terminated | out.truncated).nonzero()[0].tolist(), out)

    def close(self) -> None:
        for env in self.envs:
            close(env)
        self.envs = []

    def _step_all(self, out: Slot) -> bool:
        """Step every environment -> whether some episode ended."""
        given = self._step_each(out)
        flagged = self._write_one(given, out) if len(self.steps) == 1 else None
        if flagged is None:
            with np.errstate(over="ignore"):
                flagged = self._write_all(given, out)
        self.length += 1
        self.to_limit -= 1
        if self.to_limit > 0:
            return flagged
        np.logical_or(out.truncated, self.length >= self.limits, out=out.truncated)
        return bool((out.terminated | out.truncated).any())

    def _step_each(self, out: Slot) -> Given:
        """What each environment gives. Of several, each observation is held before the next environment steps, since
        they may share a buffer: in its row if that holds it as it is, else as a copy.

        This is the innermost loop of all: every name in it is at hand, and it keeps hold of nothing that the next
        environment could have the memory of.
        """
        at, array, several, wrong = self.at, np.ndarray, len(self.steps) > 1, None
        given = Given([], [], [], [])
        held, rewards, terminated, truncated = (column.append for column in given)
        leaf = self.observations.held_alike(out.next_observation) if several else None
        dtype, shape = (leaf.dtype, leaf.shape[1:]) if leaf is not None else (None, None)
        actions = self.actions.rows(out.action)
        try:
            for row, (step, action) in enumerate(zip(self.steps, actions, strict=True)):
                at[0] = row
                result = step(action)
                if not isinstance(result, tuple) or len(result) != 5:
                    wrong = self._wrong_step(row, result)
                    break
                value, reward, ended, cut_off, _ = result
                rewards(reward)
                terminated(ended)
                truncated(cut_off)
                if leaf is not None and type(value) is array and value.dtype is dtype and value.shape == shape:
                    leaf[row] = value
                    held(HELD)
                else:
                    held(copied(value) if several else value)
        except BaseException as error:  # also sys.exit(), which would end this thread without a word
            if is_ctrl_c(error):
                raise
            raise self._failed(at[0], error) from error
        if wrong is not None:
            raise wrong
        return given

    def _write_all(self, given: Given, out: Slot) -> bool:
        """Check what all environments returned, and write it down -> whether one says that its episode ended."""
        self.observations.write_held(given.observations, out.next_observation, self._blame)
        write_rewards(given.rewards, out.reward, self._blame)
        write_flags("terminated", given.terminated, out.terminated, self._blame)
        write_flags("truncated", given.truncated, out.truncated, self._blame)
        return True in given.terminated or True in given.truncated

    def _write_one(self, given: Given, out: Slot) -> bool | None:
        """The same for one environment, if all it returned is plain, or None: as a batch of one it takes longer than
        many an environment's whole step."""
        (observation,), (reward,), (terminated,), (truncated,) = given
        plain = type(reward) in FLOATS and type(terminated) in BOOLS and type(truncated) in BOOLS
        # NaN is no more than anything.
        if not (plain and abs(reward) <= LARGEST_REWARD and self.observations.is_plain(observation)):
            return None
        out.next_observation[0][0] = observation
        out.reward[0], out.terminated[0], out.truncated[0] = reward, terminated, truncated
        return bool(terminated or truncated)

    def _reset_rows(self, rows: list[int], out: Slot) -> None:
        self.length[rows] = -1
        observations = [copied(self._reset_row(row)) for row in rows]
        fresh = tuple(np.empty((len(rows), *leaf.shape[1:]), leaf.dtype) for leaf in out.observation)
        self.observations.write(observations, fresh, lambda place, what: self._blame(rows[place], what))
        for leaf, new in zip(out.observation, fresh, strict=True):
            leaf[rows] = new
        self.length[rows] = 0
        self.to_limit = int((self.limits - self.length).min())

    def _reset_row(self, row: int) -> Any:
        self.at[0] = row
        seed, self.seeds[row] = self.seeds[row], None
        try:
            result = self.resets[row](seed=seed)
            if seed is not None:
                self.envs[row].action_space.seed(seed)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            raise self._failed(row, error) from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._blame(row, f"reset should return (observation, info), but returned {_short(result)}")
        return result[0]

    def _make(self, make: Make, row: int) -> gymnasium.Env:
        self.at[0], self.length[row] = row, -1
        try:
            env = make()
        except BaseException as error:
            if isinstance(error, MotetError) or is_ctrl_c(error):
                raise
            raise EnvironmentFailed(
                f"{self._who(row)} could not be made: {described(error)}", self.piece.first + row
            ) from error
        if not isinstance(env, gymnasium.Env):
            raise BadEnvironment(
                f"{self.form.name!r} should make a gymnasium.Env, but made a {type(env).__name__}. "
                "For a gymnasium.vector.VectorEnv, say Gymnasium(..., vector=True)."
            )
        check_same_spaces(self.form, env.observation_space, env.action_space, self._who(row))
        quicken(env)
        return env

    def _who(self, row: int) -> str:
        return f"Environment {numbered(self.piece.first + row)} ({self.form.name})"

    def _blame(self, row: int, what: str) -> BadEnvironment:
        step = int(self.length[row]) + 1
        when = f"in step {step} of its episode" if step else "when it was reset"
        return BadEnvironment(f"{self._who(row)}, {when}: {what}.")

    def _failed(self, row: int, error: BaseException) -> EnvironmentFailed:
        step = int(self.length[row]) + 1
        when = f"in step {step} of its episode" if step else "in reset"
        return EnvironmentFailed(f"{self._who(row)} raised {when}: {described(error)}", self.piece.first + row, step)

    def _wrong_step(self, row: int, result: Any) -> BadEnvironment:
        expected = "(observation, reward, terminated, truncated, info)"
        return self._blame(row, f"step should return {expected}, but returned {_short(result)}")


def close(env: Any) -> None:
    """Close an environment, which may have failed before and may not close either."""
    try:
        env.close()
    except BaseException as error:
        if is_ctrl_c(error):
            raise


NEVER = np.iinfo(np.int64).max
LARGEST_REWARD = 1e30
"""Up to here a reward is fine in every dtype; beyond, it depends."""


def _peel(env: gymnasium.Env) -> tuple[gymnasium.Env, int]:
    """What is below the layers whose work a group does itself, for all environments at once: keeping the order of
    reset and step, and the time limit -> (environment, limit)."""
    limit = NEVER
    while isinstance(env, gymnasium.Wrapper) and type(env) in (OrderEnforcing, TimeLimit):
        if isinstance(env, TimeLimit):
            limit = min(limit, env._max_episode_steps)
        env = env.env
    return env, limit


def _short(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value)} values, {', '.join(type(each).__name__ for each in value)}"
    return f"a {type(value).__name__}"
