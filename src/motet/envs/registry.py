"""Environments by name. Nothing is imported before its name is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from motet.errors import UnknownName
from motet.flow.environment import Environment
from motet.flow.spaces import Space

ENVIRONMENTS = {
    "CartPole-v1": "motet.envs.cartpole:CartPole",
    "Pendulum-v1": "motet.envs.pendulum:Pendulum",
    "Acrobot-v1": "motet.envs.acrobot:Acrobot",
    "MountainCar-v0": "motet.envs.mountain_car:MountainCar",
    "MountainCarContinuous-v0": "motet.envs.mountain_car:MountainCarContinuous",
    "Catch-v0": "motet.envs.catch:Catch",
}
"""From an environment's id to where its class is, as "module:class"."""

ALIASES = {"Catch": "Catch-v0"}
"""Other names that `make` accepts."""


class Description(NamedTuple):
    """One line of `motet envs`."""

    id: str
    summary: str
    observation_space: Space
    action_space: Space
    time_limit: int | None


def make(env_id: str) -> Environment:
    """The environment of that id, with its default parameters."""
    env_id = ALIASES.get(env_id, env_id)
    if env_id not in ENVIRONMENTS:
        raise UnknownName("environment", env_id, [*ENVIRONMENTS, *ALIASES])
    return _load(ENVIRONMENTS[env_id])()


def describe() -> list[Description]:
    """Every environment, in the order of `ENVIRONMENTS`."""
    return [_describe(env_id, make(env_id)) for env_id in ENVIRONMENTS]


def _describe(env_id: str, env: Environment) -> Description:
    summary = (type(env).__doc__ or "").strip().partition("\n")[0]
    return Description(env_id, summary, env.observation_space, env.action_space, env.time_limit)


def _load(place: str) -> type[Environment]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
