"""Environments by name. Nothing is imported before its name is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from motet.envs import wrapping
from motet.envs.families import FAMILIES, Family, library, load
from motet.errors import BadEnvironment, BadOption, MotetError, UnknownName
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment
from motet.flow.spaces import Space
from motet.named import everywhere, is_named

ENVIRONMENTS = {
    "CartPole-v1": "motet.envs.cartpole:CartPole",
    "Pendulum-v1": "motet.envs.pendulum:Pendulum",
    "Acrobot-v1": "motet.envs.acrobot:Acrobot",
    "MountainCar-v0": "motet.envs.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "motet.envs.mountain_car:MountainCarContinuous",
    "Catch-v0": "motet.envs.catch:Catch",
}
"""From the id of an environment of motet's own to where its class is, as "module:class"."""

TWINS = frozenset(ENVIRONMENTS) - {"Catch-v0"}
"""Those that Gymnasium has under the same id."""

HOST = frozenset({"gymnasium", "envpool"})
"""Families whose environments are stepped on the host."""

ALIASES = {"Catch": "Catch-v0"}
"""Other names that `make` accepts."""


class Description(NamedTuple):
    """One line of `motet envs`."""

    id: str
    summary: str
    observation_space: Space
    action_space: Space
    time_limit: int | None


def make(
    env_id: str | Callable[[], Any],
    *,
    check_bounds: bool = False,
    time_limit: int | None = None,
    action_repeat: int | None = None,
    frame_stack: int | None = None,
    **options: Any,
) -> Environment | HostEnvironment:
    """The environment of that id, with its default parameters or other `options`.

    An id without a prefix is one of motet's own or else one of Gymnasium's; `envpool/ID`, `gymnax/ID`, `brax/ID`,
    `playground/ID` and `gymnasium/ID` name the library. `ALE/ID` is an Atari game with the usual preprocessing,
    `gymnasium/ALE/ID` the bare game. `module:Name` and `file.py:Name` are anybody's own: an id that the module
    registers, a class or a function. A function that makes a Gymnasium environment is taken, too.

    With `check_bounds`, a number outside of the bounds that an observation space declares is an error in environments
    that are stepped on the host; otherwise it is counted. Compiled ones do not look.

    Around any of them can be laid a `time_limit` after which episodes are cut off, an `action_repeat`, by which each
    action lasts so many steps, and a `frame_stack`, so many last observations as one.
    """
    wrappers = wrapping.asked(time_limit=time_limit, action_repeat=action_repeat, frame_stack=frame_stack)
    if not isinstance(env_id, str):
        strict = {"check_bounds": True} if check_bounds else {}
        made = _adapter("gymnasium")(partial(env_id, **options) if options else env_id, **strict)
        return wrapping.wrap(made, wrappers)
    try:
        env = wrapping.wrap(_make(ALIASES.get(env_id, env_id), check_bounds, options), wrappers)
    except TypeError as error:
        if not options:
            raise
        trouble = str(error) if isinstance(error, MotetError) else f"{env_id} does not take these options: {error}."
        raise BadOption(trouble) from error
    # What a run's folder says, so that it can be made again.
    object.__setattr__(env, ORIGIN, (everywhere(env_id), {**options, **wrappers}))
    return env


def as_environment(env: Any) -> Environment | HostEnvironment:
    """An environment as it is; one of an id, a function, or a class of another library is made."""
    ours = (Environment, HostEnvironment)
    if isinstance(env, str) or (callable(env) and not isinstance(env, ours) and not _is_class_of(env, ours)):
        return make(env)
    if not isinstance(env, ours):
        hint = f"; {env.__name__} is a class: make one of it with ()" if isinstance(env, type) else ""
        wanted = "an id such as 'CartPole-v1', a motet.Environment or a function that makes a Gymnasium environment"
        raise BadOption(f"env must be {wanted}, got {env!r}{hint}.")
    return env


def _is_class_of(thing: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(thing, type) and issubclass(thing, kinds)


ORIGIN = "_made_by_name"


def origin(env: Environment | HostEnvironment) -> tuple[str, dict[str, Any]]:
    """(id, options) with which `make` makes it again; of what was not made by name, its own name."""
    return getattr(env, ORIGIN, (env.name, {}))


def code_of(env: HostEnvironment) -> str:
    """What it is made of, as a hash or a version: what was measured of it holds for this code and no other."""
    return getattr(env, "code", None) or load("motet.envs.written:code_of")(env)


def _make(env_id: str, check_bounds: bool, options: dict[str, Any]) -> Environment | HostEnvironment:
    strict = {"check_bounds": True} if check_bounds else {}
    if env_id in ENVIRONMENTS:
        return load(ENVIRONMENTS[env_id])(**options)
    prefix, slash, rest = env_id.partition("/")
    if slash and prefix in FAMILIES:
        given = {"options": tuple(options.items())} if prefix == "envpool" and options else options
        env = _adapter(prefix)(rest, **(strict if prefix in HOST else {}), **given)
        if prefix == "gymnasium":
            env.name = env_id  # Without its prefix it would be taken for motet's own of that id.
        return env
    if is_named(env_id):
        library("gymnasium")
        return load("motet.envs.own:make_own")(env_id, options, check_bounds)
    if env_id.startswith("ALE/"):
        return load(FAMILIES["gymnasium"].adapter)(load("motet.envs.atari:Atari")(env_id, **options), **strict)
    if env_id in _installed_ids(FAMILIES["gymnasium"]):
        return _adapter("gymnasium")(env_id, **strict, **options)
    if slash:
        load("motet.envs.own:refuse_unserved_library")(prefix, env_id)
    raise UnknownName("environment", env_id, _candidates(env_id))


def describe() -> list[Description]:
    """Every environment of motet's own, in the order of `ENVIRONMENTS`."""
    return [_describe(env_id, load(place)()) for env_id, place in ENVIRONMENTS.items()]


def gymnasium_ids() -> list[str]:
    return list(library("gymnasium").registry)


def _describe(env_id: str, env: Environment) -> Description:
    summary = (type(env).__doc__ or "").strip().partition("\n")[0]
    return Description(env_id, summary, env.observation_space, env.action_space, env.time_limit)


def _adapter(prefix: str) -> Callable[..., Any]:
    library(prefix)  # If it is missing, this says so.
    return load(FAMILIES[prefix].adapter)


def _candidates(env_id: str) -> list[str]:
    """The ids among which to look for what was meant.

    Other libraries take seconds to import: they are asked only where nothing nearer at hand is much alike.
    """
    own = [*ENVIRONMENTS, *ALIASES]
    near = [*own, *_installed_ids(FAMILIES["gymnasium"])]
    if _is_like(env_id, near, 0.75):
        return near
    far = near + [f"{prefix}/{each}" for prefix, family in FAMILIES.items() for each in _installed_ids(family)]
    return far if _is_like(env_id, far, 0.5) else own + [f"{prefix}/ID" for prefix in FAMILIES]


def _is_like(name: str, names: list[str], likeness: float) -> bool:
    return bool(difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1, likeness))


def _installed_ids(family: Family) -> list[str]:
    if not family.installed:
        return []
    try:
        return load(family.ids)()
    except BadEnvironment:  # It cannot be imported; whoever asks for it by its prefix is told.
        return []
