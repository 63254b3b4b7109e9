"""Environments of MuJoCo Playground, robots simulated by MuJoCo in JAX: `playground/CartpoleBalance`.

The tasks of DeepMind's control suite come with the package. Those of locomotion and manipulation show robots that
Playground downloads when it first makes one.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Any

from motet.envs.families import library
from motet.envs.simulated import Simulated
from motet.errors import BadEnvironment, UnknownName


def ids() -> list[str]:
    return sorted(_registry().ALL_ENVS)


def _registry() -> Any:
    return library("playground").registry


@dataclass(frozen=True)
class Playground(Simulated):
    """One of Playground's tasks, with its default parameters. Actions are in [-1, 1]."""

    impl: str = "jax"
    """What computes: jax, which runs everywhere, or warp, which needs a GPU of Nvidia's."""

    def __post_init__(self) -> None:
        registry = _registry()
        if self.id not in registry.ALL_ENVS:
            raise UnknownName("playground environment", self.id, ids())
        config = registry.get_default_config(self.id)
        overrides = {"impl": self.impl} if "impl" in config else {}
        try:
            env = registry.load(self.id, config_overrides=overrides)
        except (OSError, subprocess.SubprocessError) as error:
            raise BadEnvironment(
                f"playground/{self.id} needs the models of robots that Playground downloads with git when it first "
                f"makes one, and that failed: {str(error).rstrip('.')}. The tasks of the control suite, such as "
                "playground/CartpoleBalance, need no download."
            ) from error
        name = f"playground/{self.id}" + (f" ({self.impl})" if self.impl != "jax" else "")
        self.adopt(env, name, int(config.episode_length))
