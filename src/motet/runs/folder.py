"""A run's folder: what was run, how it went, and the policy that came out. Plain files, none of which runs code.

A folder belongs to one run: whoever makes its file `running` first. It is gone when the run is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.runs import options, trust
from motet.runs.metrics import Row
from motet.runs.policy import Policy

RUNNING = "running"
"""The file that says that a folder is taken, and by which process."""


def fresh(base: Path, name: str) -> Path:
    """Make a new folder below `base`, named for what runs and when. No other run gets the same one."""
    stamp, count = time.strftime("%Y%m%d-%H%M%S"), 1
    base.mkdir(parents=True, exist_ok=True)
    while True:
        path = base / (f"{name}-{stamp}" if count == 1 else f"{name}-{stamp}-{count}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            count += 1


@dataclass(frozen=True)
class Names:
    """What to ask for to have a run's algorithm and environment again."""

    algorithm: str
    environment: str
    environment_options: Mapping[str, Any]
    networks: tuple[str, ...] = ()
    """Code that the algorithm's options name."""

    def told(self) -> dict[str, Any]:
        """As a configuration has them, signed if they name code that a reader would have to import."""
        told = dataclasses.asdict(self)
        signed = trust.sign(told) if trust.imports(self.all) else None
        return {**told, "signature": signed} if signed else told

    @property
    def all(self) -> tuple[str, ...]:
        return (self.algorithm, self.environment, *self.networks)


class Writer:
    """Writes one run's folder; a context for one open file."""

    def __init__(self, path: Path):
        if path.is_dir() and any(path.iterdir()):
            raise _taken(path)
        if path.exists() and not path.is_dir():
            raise BadOption(f"{path} is a file; name a folder with run_dir.")
        self.path = path.absolute()
        self.warnings: list[str] = []
        self._files: dict[str, str] = {}
        self._metrics: Any = None
        self._running = False

    def begin(self, graph: Graph, plan: Plan, algorithm: Algorithm, seed: int, names: Names) -> None:
        """Take the folder, and write down what is run."""
        config = {
            **names.told(),
            "options": options.to_json(algorithm),
            "seed": seed,
            "iterations": graph.iterations,
            "steps": graph.prefill_steps + graph.iterations * graph.steps_per_iteration,
            "per_replica": list(plan.per_replica),
            "versions": {
                name: importlib.metadata.version(name) for name in ("motet", "jax", "jaxlib", "optax", "flax")
            },
        }
        self._files = {"config.json": json.dumps(config, indent=2) + "\n", "plan.json": plan.to_json() + "\n"}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take()
            self._describe(self.path)
            self._metrics = (self.path / "metrics.jsonl").open("w", buffering=1)
        except OSError as error:
            raise BadOption(f"The run's folder {self.path} cannot be written: {error.strerror}.") from error

    def row(self, row: Row) -> None:
        """Write a row of metrics. If that fails the training goes on: it is worth more than its curve."""
        if self._metrics is None:
            return
        try:
            self._metrics.write(json.dumps(row) + "\n")
        except OSError as error:
            self.warnings.append(f"{self.path / 'metrics.jsonl'} ends early: {error.strerror}")
            with contextlib.suppress(OSError):
                self._metrics.close()
            self._metrics = None

    def policy(self, policy: Policy) -> None:
        policy.save(self.path)

    def rescue(self, policy: Policy) -> Path:
        """Save the policy, and what it belongs to, in a new folder for temporary files."""
        place = Path(tempfile.mkdtemp(prefix=f"motet-{self.path.name}-"))
        self._describe(place)
        policy.save(place)
        return place

    def close(self) -> None:
        if self._metrics is not None:
            with contextlib.suppress(OSError):
                self._metrics.close()
            self._metrics = None
        if self._running:
            self._running = False
            with contextlib.suppress(OSError):
                (self.path / RUNNING).unlink()

    def _take(self) -> None:
        try:
            with (self.path / RUNNING).open("x") as file:
                file.write(f"{os.getpid()}\n")
        except FileExistsError:
            raise _taken(self.path) from None
        self._running = True

    def _describe(self, folder: Path) -> None:
        for name, text in self._files.items():
            (folder / name).write_text(text)


def _taken(path: Path) -> BadOption:
    process = _living(path / RUNNING)
    if process is not None:
        return BadOption(f"The folder {path} is in use by the run of process {process}; name another one with run_dir.")
    return BadOption(f"The folder {path} already holds something; name another one with run_dir.")


def _living(running: Path) -> int | None:
    """The process that wrote the file, if it is still there."""
    try:
        process = int(running.read_text())
    except (OSError, ValueError):
        return None
    try:
        os.kill(process, 0)
    except PermissionError:  # somebody else's, so it is there
        return process
    except (OSError, OverflowError):
        return None
    return process
