"""The algorithms, each in a file of its own. They are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module

from motet.errors import UnknownName
from motet.flow.algorithm import Algorithm

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
    """The class of an algorithm, by its name or its class's name (which runs write down), in any case."""
    names = {cls.lower(): module for module, cls in ALGORITHMS.items()} | {module: module for module in ALGORITHMS}
    if name.lower() not in names:
        raise UnknownName("algorithm", name, ALGORITHMS)
    module = names[name.lower()]
    return getattr(import_module(f"motet.algorithms.{module}"), ALGORITHMS[module])
