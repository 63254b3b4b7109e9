"""A run's configuration, read so that the run can be repeated: `motet train --config`, `motet.configuration`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import BadOption, UnknownName
from motet.opened import Opened, open_config
from motet.runs.finding import CONFIG, resolve_run
from motet.runs.reading import Damaged

if TYPE_CHECKING:
    from motet.plan.plan import Plan

NUMBER = (int, float)
RUN: dict[str, tuple[type, ...]] = {
    "serial": (bool,),
    "timeout": NUMBER,
    "step_timeout": NUMBER,
    "restarts": (int,),
    "checkpoint_seconds": NUMBER,
    "checkpoint_steps": (int,),
    "keep": (int,),
    "eval_steps": (int,),
    "eval_seconds": NUMBER,
    "eval_episodes": (int,),
    "eval_explore": (bool,),
    "stop_when": (str,),
    "track": (str,),
}
"""What `run` of a configuration may say, and as what; each may be null too."""
NUMBERS = ("seed", "steps", "iterations", "devices")
READ = ("algorithm", "environment", "environment_options", "options", "plan", "run", *NUMBERS)
WRITTEN = ("format", "networks", "learning", "signature", "per_replica", "versions")
"""What is in a run's file besides, and follows from the rest."""


def configuration(source: str | Path, *, trust: bool = False) -> dict[str, Any]:
    """What `motet.train` is to be told to repeat a run: `motet.train(**motet.configuration("runs/first"))`.

    `source` is a run's folder, its name below runs/, `latest`, or a file such as a run's `config.json`. Where the run
    is saved is not among it. Code that a file of somebody else's names is only imported if you `trust` it.
    """
    read = read_configuration(source, trusted=trust)
    told = {
        "algorithm": read.opened.algorithm(),
        "env": read.opened.environment(),
        "plan": read.plan(),
        "total_timesteps": read.opened.config.get("steps"),
        "seed": read.opened.config.get("seed"),
        **read.run,
    }
    told |= {"mode": "serial"} if told.pop("serial", False) else {}
    return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True)
class Configuration:
    """A configuration whose form is right."""

    opened: Opened
    run: Mapping[str, Any]
    """How it was run; what was left to motet is not in it."""

    def plan(self) -> Plan | None:
        """The plan, if there is one in it."""
        from motet.plan.plan import Plan

        plan = self.opened.config.get("plan")
        return None if plan is None else Plan.from_json(json.dumps(plan))

    def number(self, name: str) -> int | None:
        return self.opened.config.get(name)


def read_configuration(source: str | Path, *, trusted: bool = False) -> Configuration:
    """Read a file, or that of a run's folder, and refuse what no run has written."""
    file = find_configuration(source)
    opened = open_config(file, "repeat what is in", trusted=trusted, learns=True)
    config = opened.config
    _known(file, "key of a configuration", config, (*READ, *WRITTEN))
    for name in NUMBERS:
        if config.get(name) is not None:
            opened.number(name)
    for name in ("options", "plan"):
        if not isinstance(config.get(name, {}), dict):
            raise Damaged(f"{file} is damaged: {name} should be an object, but is {config[name]!r}.")
    return Configuration(opened, _run(file, config.get("run", {})))


def find_configuration(source: str | Path) -> Path:
    """The file that is meant."""
    file = Path(source)
    return file if file.is_file() else resolve_run(source) / CONFIG


def _run(file: Path, told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise Damaged(f"{file} is damaged: run should be an object, but is {told!r}.")
    _known(file, "key of `run` of a configuration", told, RUN)
    for name, value in told.items():
        fits = isinstance(value, RUN[name]) and (bool in RUN[name] or not isinstance(value, bool))
        if value is not None and not fits:
            kinds = " or ".join(kind.__name__ for kind in RUN[name])
            raise BadOption(f"{file}: {name} of run should be of type {kinds}, but is {value!r}.")
    return {name: value for name, value in told.items() if value is not None}


def _known(file: Path, what: str, told: Mapping[str, Any], known: Collection[str]) -> None:
    for name in told:
        if name not in known:
            raise UnknownName(f"{what} (in {file})", name, known)
