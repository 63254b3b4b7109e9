"""Gymnasium's environments by their ids. Worker processes use it, so it must not load JAX."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from motet.errors import BadEnvironment, UnknownName


@dataclass(frozen=True)
class ById:
    """Makes environments of a registered id. The registration travels along: a worker has not run the caller's."""

    spec: EnvSpec
    vector: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, count: int | None = None) -> Any:
        if self.vector:
            return gymnasium.make_vec(self.spec, num_envs=count or 1, **self.options)
        return gymnasium.make(self.spec, **{"disable_env_checker": True, **self.options})


def find(env_id: str) -> EnvSpec:
    """The registration of an id, which may name the module that registers it."""
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise BadEnvironment(f"The module of {env_id!r} cannot be imported: {error}.") from error
    if name.startswith("ALE/"):
        from motet.envs.atari import register_games  # with wrappers that other workers need not load

        register_games()
    if name not in gymnasium.registry:
        raise UnknownName("Gymnasium environment", name, gymnasium.registry)
    spec = copy.deepcopy(gymnasium.registry[name])
    for point in ("entry_point", "vector_entry_point"):
        # A worker has another main module.
        if str(getattr(spec, point)).startswith("__main__:"):
            setattr(spec, point, load_env_creator(getattr(spec, point)))
    return spec
