"""Other libraries' environments: their prefixes, where their adapters are, and how to install what they need."""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import Any, NamedTuple

from motet.errors import BadEnvironment


class Family(NamedTuple):
    """The environments of one library. An id `prefix/ID` is given to the adapter as `ID`."""

    prefix: str
    package: str
    """What is imported; the extra of motet that installs it has the prefix's name."""
    adapter: str
    """The adapter's class, as "module:class"."""
    ids: str
    """A function of no arguments that lists the ids, likewise."""
    example: str
    summary: str

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install 'motet[{self.prefix}]'"


FAMILIES = {
    family.prefix: family
    for family in (
        Family(
            "gymnasium",
            "gymnasium",
            "motet.envs.gymnasium:Gymnasium",
            "motet.envs.registry:gymnasium_ids",
            "gymnasium/FrozenLake-v1",
            "Everything that Gymnasium can make, in worker processes; its ids also work without the prefix.",
        ),
        Family(
            "envpool",
            "envpool",
            "motet.envs.envpool:EnvPool",
            "motet.envs.envpool:ids",
            "envpool/Pong-v5",
            "Atari, MuJoCo and others, stepped by EnvPool's native threads.",
        ),
        Family(
            "gymnax",
            "gymnax",
            "motet.envs.gymnax:Gymnax",
            "motet.envs.gymnax:ids",
            "gymnax/Breakout-MinAtar",
            "Classic control, MinAtar and bsuite, written in JAX.",
        ),
        Family(
            "brax",
            "brax",
            "motet.envs.brax:Brax",
            "motet.envs.brax:ids",
            "brax/ant",
            "Robots with joints and contacts, simulated in JAX.",
        ),
        Family(
            "playground",
            "mujoco_playground",
            "motet.envs.playground:Playground",
            "motet.envs.playground:ids",
            "playground/CheetahRun",
            "The control suite and robots, simulated by MuJoCo in JAX.",
        ),
    )
}
"""By prefix."""


EXTRAS = {"gymnasium.envs.mujoco.": "mujoco", "gymnasium.envs.box2d.": "box2d"}
"""Where environments of Gymnasium's own are that need more -> the extra of motet that installs it."""


def extra_of(entry_point: Any) -> str | None:
    """The extra of motet that an environment of Gymnasium's needs, if it is known to need one."""
    return next((extra for start, extra in EXTRAS.items() if str(entry_point).startswith(start)), None)


def load(place: str) -> Any:
    """What is at "module:name"."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def library(prefix: str, module: str | None = None) -> Any:
    """The library of a family, or a module of it; an error that says what to install where it is missing."""
    family = FAMILIES[prefix]
    try:
        # What they miss or should use instead is between these libraries: they warn of it, and MuJoCo prints it.
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore", DeprecationWarning)
            return import_module(module or family.package)
    except ImportError as error:
        if not family.installed:
            raise BadEnvironment(
                f"{prefix}/ environments need the package {family.package}, which is not installed: {family.install}"
            ) from None
        raise BadEnvironment(
            f"{prefix}/ environments need the package {family.package}, which is installed but cannot be imported: "
            f"{error}. Its versions may not fit: {family.install}"
        ) from error
