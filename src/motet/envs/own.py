"""Anybody's own environments by name: classes and functions of motet's kind or Gymnasium's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from motet import named
from motet.envs.gymnasium import Gymnasium
from motet.errors import BadEnvironment, BadOption, MotetError, described
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment

UNSERVED = {
    "pettingzoo": "environments of several agents, by PettingZoo, which motet does not serve: it trains one agent in "
    "each environment. Make a gymnasium.Env of it, which moves the other agents itself",
    "gym": "environments of the old Gym, whose steps return four values. Make them environments of Gymnasium, by "
    "shimmy.GymV26CompatibilityV0 for example",
    "dm_env": "environments of dm_env. Make them environments of Gymnasium, by shimmy.DmControlCompatibilityV0 for "
    "example",
    "dm_control": "environments of dm_env. Make them environments of Gymnasium, by shimmy.DmControlCompatibilityV0 for "
    "example",
    "ray": "environments of RLlib. Make them environments of Gymnasium",
    "jumanji": "environments of Jumanji. Write a motet.Environment around them",
}
"""Package -> what its environments are, and what to do."""


def make_own(name: str, options: dict[str, Any], check_bounds: bool) -> Environment | HostEnvironment:
    """The environment of `module:Name` or `file.py:Name`, made with `options`.

    A name may be an id that importing the module registers with Gymnasium, an environment, its class, or a function
    that makes one.
    """
    module, attribute = named.module_of(name), name.rpartition(":")[2]
    strict = {"check_bounds": True} if check_bounds else {}
    if attribute in gymnasium.registry and not hasattr(module, attribute):
        env = Gymnasium(f"{module.__name__}:{attribute}", **strict, **options)
        env.name = name
        return env
    thing = named.find(name)
    refuse_unserved(thing, name)
    if isinstance(thing, Environment | HostEnvironment):
        if options:
            raise BadOption(f"{name} is made already; options are for classes and functions.")
        return thing
    if not callable(thing):
        raise BadEnvironment(f"{name} should be an environment, its class or what makes one, but is {thing!r}.")
    make = partial(thing, **options) if options else thing
    env = _call(make, name)
    if isinstance(env, Environment | HostEnvironment):
        return env
    refuse_unserved(env, name)
    with contextlib.suppress(Exception):
        env.close()
    adapted = Gymnasium(make, vector=False, **strict)
    adapted.name = name
    return adapted


def refuse_unserved(thing: Any, name: str) -> None:
    """Say so of environments that are known, and not served."""
    kinds = (thing if isinstance(thing, type) else type(thing)).__mro__
    for kind in kinds:
        package = kind.__module__.partition(".")[0]
        if package in UNSERVED:
            raise BadEnvironment(f"{name} is one of the {UNSERVED[package]}.")


def refuse_unserved_library(prefix: str, name: str) -> None:
    """The same where the library is named, as in pettingzoo/pistonball_v6."""
    package = prefix.lower().replace("-", "_")
    if package in UNSERVED:
        raise BadEnvironment(f"{name} is one of the {UNSERVED[package]}.")


def _call(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except (MotetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise BadEnvironment(f"{name} cannot be made: {described(error)}.") from error
