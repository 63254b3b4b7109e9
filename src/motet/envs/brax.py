"""Environments of Brax, robots simulated in JAX: `brax/ant`."""

from __future__ import annotations

from dataclasses import dataclass

from motet.envs.families import library
from motet.envs.simulated import Simulated
from motet.errors import UnknownName

EPISODE_LENGTH = 1000
"""Brax leaves it to whoever trains; all of its own training scripts take this."""


def ids() -> list[str]:
    return sorted(library("brax", "brax.envs")._envs)


@dataclass(frozen=True)
class Brax(Simulated):
    """One of Brax's environments, with its default parameters. Actions are in [-1, 1]."""

    backend: str | None = None
    """How contacts and joints are computed: generalized, spring, positional or mjx; None: as the environment says."""

    def __post_init__(self) -> None:
        envs = library("brax", "brax.envs")
        if self.id not in envs._envs:
            raise UnknownName("brax environment", self.id, ids())
        options = {} if self.backend is None else {"backend": self.backend}
        name = f"brax/{self.id}" + (f" ({self.backend})" if self.backend else "")
        self.adopt(envs.get_environment(self.id, **options), name, EPISODE_LENGTH)
