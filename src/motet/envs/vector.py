"""Gymnasium's vector environments, whatever their way of resetting, as a group that resets within the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from motet.envs.actions import Actions
from motet.envs.checks import Observations, write_flags, write_rewards
from motet.envs.form import Form, Make, check_same_spaces
from motet.envs.group import At, Seats, close
from motet.envs.slots import Slot
from motet.errors import BadEnvironment, EnvironmentFailed, MotetError, described, is_ctrl_c


class Vector:
    """A group that is one vector environment.

    An episode that ended must be reset in the same step, and its last observation kept. How, depends on the
    environment's `autoreset_mode`:

    - same step: it does so itself, and hands over the last observations in `info["final_obs"]`;
    - disabled: the pool resets the rows that ended, with `options={"reset_mask": rows}`;
    - next step: the same, before the next step comes to it. Only Gymnasium's own `SyncVectorEnv` and `AsyncVectorEnv`
      take a mask in this mode. Others would reset everything or nothing, and are refused.
    """

    def __init__(self, make: Make, form: Form, piece: Seats, at: At, record: np.ndarray):
        self.form, self.piece, self.at = form, piece, at
        self.observations, self.actions = Observations(form, record), Actions(form)
        self.length = np.zeros(len(piece.seeds), np.int64)
        self.seeds: Sequence[int] | None = piece.seeds
        self.env: VectorEnv | None = self._make(make, len(piece.seeds))
        try:
            self.mode = autoreset_mode(self._env, form.name)
            check_same_spaces(form, self._env.single_observation_space, self._env.single_action_space, self._who())
        except BaseException:
            self.close()
            raise

    def reset(self, out: Slot) -> None:
        self.length[:] = -1
        seeds, self.seeds = self.seeds, None
        try:
            observation, _ = self._env.reset(seed=self._seed(seeds))
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            raise self._failed(error) from error
        self._write(observation, out.observation)
        for first, last in zip(out.observation, out.next_observation, strict=True):
            np.copyto(last, first)
        self.length[:] = 0

    def step(self, out: Slot) -> None:
        action = self.actions.batch(out.action)
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            raise self._failed(error) from error
        write_rewards(np.asarray(reward), out.reward, self._blame)
        write_flags("terminated", np.asarray(terminated), out.terminated, self._blame)
        write_flags("truncated", np.asarray(truncated), out.truncated, self._blame)
        ended = out.terminated | out.truncated
        self._write(observation, out.next_observation)
        for first, last in zip(out.observation, out.next_observation, strict=True):
            np.copyto(first, last)
        if ended.any():
            if self.mode is AutoresetMode.SAME_STEP:
                self._write_last(info, ended, out)
            else:
                self._write_first(self._reset_rows(ended), ended, out)
        self.length += 1
        self.length[ended] = 0

    def close(self) -> None:
        env, self.env = self.env, None
        if env is not None:
            close(env)

    @property
    def _env(self) -> VectorEnv:
        assert self.env is not None
        return self.env

    def _write(self, observation: Any, out: Any) -> None:
        with np.errstate(over="ignore"):
            self.observations.write_batch(observation, out, self._blame)

    def _write_last(self, info: dict[str, Any], ended: np.ndarray, out: Slot) -> None:
        """Over the new episodes' first observations, where episodes ended."""
        last = info.get("final_obs")
        if last is None:
            raise BadEnvironment(
                f"{self._who()} resets in the same step, so that it should give the last observations of episodes in "
                f'info["final_obs"], but its info has only {sorted(info)}.'
            )
        rows = ended.nonzero()[0].tolist()
        nested = isinstance(last, dict | tuple)
        batch = self._pick(last, rows) if nested else [last[row] for row in rows]
        leaves = tuple(leaf[rows] for leaf in out.next_observation)
        if nested:
            self.observations.write_batch(batch, leaves, self._blame)
        else:
            self.observations.write(batch, leaves, lambda row, what: self._blame(rows[row], what))
        for leaf, picked in zip(out.next_observation, leaves, strict=True):
            leaf[rows] = picked

    def _write_first(self, observation: Any, ended: np.ndarray, out: Slot) -> None:
        """Over the last observations of episodes that ended; the other rows are as they were."""
        rows = ended.nonzero()[0].tolist()
        leaves = tuple(np.empty((len(rows), *leaf.shape[1:]), leaf.dtype) for leaf in out.observation)
        with np.errstate(over="ignore"):
            blame = lambda row, what: self._blame(rows[row], what)  # noqa: E731
            self.observations.write_batch(self._pick(observation, rows), leaves, blame)
        for leaf, picked in zip(out.observation, leaves, strict=True):
            leaf[rows] = picked

    def _pick(self, value: Any, rows: list[int]) -> Any:
        """Some rows of a batch of a nested space."""
        if isinstance(value, dict):
            return {name: self._pick(each, rows) for name, each in value.items()}
        return tuple(self._pick(each, rows) for each in value) if isinstance(value, tuple) else value[rows]

    def _reset_rows(self, ended: np.ndarray) -> Any:
        try:
            observation, _ = self._env.reset(options={"reset_mask": ended.copy()})
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            raise self._failed(error) from error
        return observation

    def _seed(self, seeds: Sequence[int] | None) -> Any:
        """One seed for each where the environment can take them; others get the first one's."""
        if seeds is None:
            return None
        return list(seeds) if _is_gymnasiums_own(self._env) else seeds[0]

    def _make(self, make: Make, count: int) -> VectorEnv:
        try:
            env = make(count)
        except BaseException as error:
            if isinstance(error, MotetError) or is_ctrl_c(error):
                raise
            raise EnvironmentFailed(f"{self._who()} could not be made: {described(error)}") from error
        if not isinstance(env, VectorEnv) or env.num_envs != count:
            got = f"one of {env.num_envs}" if isinstance(env, VectorEnv) else f"a {type(env).__name__}"
            raise BadEnvironment(f"{self._who()} should be a vector environment of {count}, but is {got}.")
        return env

    def _who(self) -> str:
        return f"The vector environment {self.form.name!r}"

    def _blame(self, row: int, what: str) -> BadEnvironment:
        step = int(self.length[row]) + 1
        when = f"in step {step} of its episode" if step else "when it was reset"
        return BadEnvironment(f"Environment {self.piece.first + row} ({self.form.name}), {when}: {what}.")

    def _failed(self, error: BaseException) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self._who()} raised {described(error)}")


def autoreset_mode(env: VectorEnv, name: str) -> AutoresetMode:
    """How the environment resets; one whose way cannot be made right is refused."""
    stated = env.metadata.get("autoreset_mode")
    if not isinstance(stated, AutoresetMode):
        raise BadEnvironment(
            f"The vector environment {name!r} should say how it resets in metadata['autoreset_mode'], as a "
            f"gymnasium.vector.AutoresetMode, but says {stated!r}."
        )
    if stated is AutoresetMode.NEXT_STEP and not _is_gymnasiums_own(env):
        raise BadEnvironment(
            f"The vector environment {name!r} resets in the step after an episode's end, and cannot reset single rows "
            "before it: that step's action would be lost. Use it as single environments (without vector=True), with "
            'vectorization_mode="sync", or in a mode that resets in the same step.'
        )
    return stated


def _is_gymnasiums_own(env: VectorEnv) -> bool:
    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
