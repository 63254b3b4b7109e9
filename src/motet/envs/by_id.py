"""Gymnasium's environments by their ids. Worker processes use it, so it must not load JAX."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import cloudpickle
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
    return _for_workers(gymnasium.registry[name])


def registrations() -> list[bytes]:
    """Everything that this process has registered with Gymnasium and a worker has not, each pickled: a function that
    makes environments may ask for any of it. What cannot be pickled is left out."""
    found = []
    for spec in list(gymnasium.registry.values()):
        if not str(spec.entry_point).startswith("gymnasium."):
            with contextlib.suppress(Exception):
                found.append(cloudpickle.dumps(_for_workers(spec)))
    return found


def register_all(pickled: Iterable[bytes]) -> None:
    """In a worker: know what the pool's process knows."""
    for each in pickled:
        with contextlib.suppress(Exception):  # of a module that is not found here; whoever needs it is told
            spec = pickle.loads(each)
            gymnasium.registry.setdefault(spec.id, spec)


def _for_workers(spec: EnvSpec) -> EnvSpec:
    """A registration that holds in a worker, which has another main module."""
    spec = copy.deepcopy(spec)
    for point in ("entry_point", "vector_entry_point"):
        if str(getattr(spec, point)).startswith("__main__:"):
            setattr(spec, point, load_env_creator(getattr(spec, point)))
    return spec
