"""The algorithms, each in a file of its own. They are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module

from motet.errors import BadAlgorithm, UnknownName
from motet.flow.algorithm import Algorithm
from motet.named import find as find_named
from motet.named import is_named, spell

ALGORITHMS = {
    "ppo": "PPO",
    "batch_ppo": "BatchPPO",
    "a2c": "A2C",
    "impala": "IMPALA",
    "dqn": "DQN",
    "ddpg": "DDPG",
    "td3": "TD3",
    "sac": "SAC",
}
"""Name -> class, in the module of that name."""


def find(name: str) -> type[Algorithm]:
    """The class of an algorithm, by its name or its class's name (which runs write down), in any case; or of anybody's
    own, by `module:Class` or `file.py:Class`."""
    if is_named(name):
        return _own(name)
    names = {cls.lower(): module for module, cls in ALGORITHMS.items()} | {module: module for module in ALGORITHMS}
    if name.lower() not in names:
        raise UnknownName("algorithm", name, ALGORITHMS)
    module = names[name.lower()]
    return getattr(import_module(f"motet.algorithms.{module}"), ALGORITHMS[module])


def name_of(algorithm: Algorithm) -> str:
    """The name under which `find` finds its class."""
    kind = type(algorithm)
    ours = kind.__module__.startswith("motet.algorithms.") and kind.__name__ in ALGORITHMS.values()
    return kind.__name__.lower() if ours else spell(kind)


def _own(name: str) -> type[Algorithm]:
    found = find_named(name)
    if not isinstance(found, type) or not issubclass(found, Algorithm):
        hint = f"; name its class, {type(found).__name__}" if isinstance(found, Algorithm) else ""
        raise BadAlgorithm(f"{name} should be a subclass of motet.Algorithm, but is {found!r}{hint}.")
    return found
