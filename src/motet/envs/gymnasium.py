"""Gymnasium's environments: single ones, by id or by a function, and vector environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym
from gymnasium.error import DependencyNotInstalled

from motet.bounds import Tally
from motet.envs.by_id import ById, find
from motet.envs.families import extra_of
from motet.envs.form import Form, Make, SpaceLeaf
from motet.envs.group import Build, Singles
from motet.envs.thread import ThreadPool
from motet.envs.vector import Vector, autoreset_mode
from motet.envs.written import code_of
from motet.errors import BadEnvironment, MotetError, described
from motet.flow.host import HostEnvironment, Opening, Pool
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from motet.flow.spaces import parts as space_parts

LIGHT = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Where the classes are whose steps take some ten microseconds."""


class Gymnasium(HostEnvironment):
    """Environments of Gymnasium, in the caller's thread or in worker processes.

    `make` is an id (`"CartPole-v1"`, `"package:Name-v0"`) with the options of `gymnasium.make`, or a function that
    returns a `gymnasium.Env`. With `vector`, an id for `gymnasium.make_vec`, or a function from a number to a
    `gymnasium.vector.VectorEnv` of so many.

    Numbers outside of a Box's bounds are counted, and a run tells of them when it is over; with `check_bounds` they
    are an error. What has another shape or dtype, or is not finite, always is.
    """

    def __init__(self, make: str | Make, *, vector: bool = False, check_bounds: bool = False, **options: Any):
        if isinstance(make, str):
            self.name, self.make = make, ById(find(make), vector, options)
        else:
            if options:
                raise BadEnvironment(f"Options are for ids; give {', '.join(options)} to the function that you pass.")
            self.name, self.make = _name_of(make), make
        self.vector, self.check_bounds, self.options = vector, check_bounds, options
        self.outside = Tally()
        self._observation, self._action = self._ask_for_spaces()
        self.observation_space = convert_space(self._observation)
        self.action_space = convert_space(self._action)

    def open(self, opening: Opening) -> Pool:
        form = self.form()
        build: Build = partial(Vector if self.vector else Singles, self.make, form)
        if not opening.workers:
            return ThreadPool(build, form, opening, self.outside)
        from motet.envs.workers import WorkerPool

        return WorkerPool(build, form, opening, self.outside)

    def form(self) -> Form:
        """What workers need to know of the spaces: they cannot ask JAX."""
        reward = Box(0.0, 0.0, ()).aval.dtype.name
        observation, action = _leaves(self.observation_space), _leaves(self.action_space)
        return Form(self.name, self._observation, self._action, observation, action, reward, self.check_bounds)

    def _ask_for_spaces(self) -> tuple[gymnasium.Space, gymnasium.Space]:
        env = self._make_one()
        try:
            self.one_thread = getattr(env, "render_mode", None) is not None
            self.light = type(env.unwrapped).__module__.startswith(LIGHT)
            self.time_limit = getattr(env.spec, "max_episode_steps", None)
            self.code = code_of(env)
            if self.vector:
                autoreset_mode(env, self.name)  # Refuses what no pool could use.
                return env.single_observation_space, env.single_action_space
            return env.observation_space, env.action_space
        finally:
            self._close(env)

    def _close(self, env: Any) -> None:
        """Before a run begins, an environment that cannot be closed is an error; in a run it would come too late."""
        try:
            env.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise BadEnvironment(
                f"{self.name!r} was made only to ask for its spaces, and its close() raised {described(error)}. "
                "Let close() succeed at any time, also before the first reset()."
            ) from error

    def _make_one(self) -> Any:
        try:
            env = self.make(1) if self.vector else self.make()
        except (MotetError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise BadEnvironment(f"{self.name!r} cannot be made: {self._remedy(error)}") from error
        expected = gymnasium.vector.VectorEnv if self.vector else gymnasium.Env
        if not isinstance(env, expected):
            hint = " Say vector=True." if isinstance(env, gymnasium.vector.VectorEnv) else ""
            raise BadEnvironment(
                f"{self.name!r} should make a {expected.__name__} of gymnasium, but made a {type(env).__name__}.{hint}"
            )
        return env

    def _remedy(self, error: BaseException) -> str:
        """What to install, where that is what is missing; else the error itself."""
        extra = extra_of(self.make.spec.entry_point) if isinstance(self.make, ById) else None
        if extra is None or not isinstance(error, ImportError | DependencyNotInstalled):
            return described(error)
        return f"it needs packages that are not installed: pip install 'motet[{extra}]'. ({described(error)})"


def convert_space(space: gymnasium.Space) -> Space:
    """The motet space of the same values. Discrete ones count from 0 here, wherever they start there."""
    if isinstance(space, gym.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, gym.MultiDiscrete):
        return MultiDiscrete(tuple(int(n) for n in space.nvec.flat))
    if isinstance(space, gym.MultiBinary):
        return MultiBinary(tuple(space.shape))
    if isinstance(space, gym.Box):
        return _convert_box(space)
    if isinstance(space, gym.Dict):
        if not all(isinstance(name, str) for name in space.spaces):
            raise BadEnvironment(f"The parts of a Dict space must be named by strings, but are {list(space.spaces)}.")
        return Dict({name: convert_space(each) for name, each in space.spaces.items()})
    if isinstance(space, gym.Tuple):
        return Tuple(tuple(convert_space(each) for each in space.spaces))
    raise BadEnvironment(
        f"A space should be made of Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple, but one is {space}. "
        "Its values have no fixed size; encode them as one of these with a gymnasium.ObservationWrapper."
    )


HELD_AS = {"float32": "float", "float64": "float", "int64": "int32", "uint64": "uint32"}
"""What JAX would not keep as it is, without 64 bits; the checks of a pool see to it that no value is lost."""


def _convert_box(box: gym.Box) -> Box:
    dtype = HELD_AS.get(box.dtype.name, box.dtype.name)
    if np.dtype(dtype).kind not in "fiub":
        raise BadEnvironment(f"A Box should hold numbers or bools, but {box} holds {box.dtype}.")
    return Box(_bound(box.low, dtype), _bound(box.high, dtype), tuple(box.shape), dtype)


def _bound(bound: np.ndarray, dtype: str) -> float | tuple[float, ...]:
    """As numbers that the dtype can hold; what is beyond float32 is no bound at all."""
    values = bound.astype(np.float64).ravel()
    if dtype == "float":
        values = np.where(np.abs(values) >= np.finfo(np.float32).max, np.copysign(np.inf, values), values)
    elif np.dtype(dtype).kind in "iu":
        values = np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max)
    if values.size and (values == values[0]).all():
        return float(values[0])
    return tuple(values.tolist())


def _leaves(space: Space) -> tuple[SpaceLeaf, ...]:
    avals = [part.aval for part in space_parts(space)]
    return tuple(SpaceLeaf(tuple(aval.shape), np.dtype(aval.dtype).name) for aval in avals)


def _name_of(make: Callable[..., Any]) -> str:
    while isinstance(make, partial):
        make = make.func
    return str(getattr(make, "name", None) or getattr(make, "__name__", None) or type(make).__name__)
