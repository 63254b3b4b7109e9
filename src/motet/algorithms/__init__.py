"""The algorithms, each in a file of its own. They are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module

from motet.errors import UnknownName
from motet.flow.algorithm import Algorithm

ALGORITHMS = {"ppo": "PPO", "a2c": "A2C", "dqn": "DQN"}
"""Name -> class, in the module of that name."""


def find(name: str) -> type[Algorithm]:
    """The class of an algorithm, by its name in any case."""
    if name.lower() not in ALGORITHMS:
        raise UnknownName("algorithm", name, ALGORITHMS)
    module = import_module(f"motet.algorithms.{name.lower()}")
    return getattr(module, ALGORITHMS[name.lower()])
