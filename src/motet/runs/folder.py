"""A run's folder: what was run, how it went, and the policy that came out. Plain files, none of which runs code."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import time
from pathlib import Path
from typing import Any

from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.runs.metrics import Row
from motet.runs.policy import Policy


def fresh(base: Path, name: str) -> Path:
    """A folder below `base` that does not exist yet, named for what runs and when."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path, count = base / f"{name}-{stamp}", 1
    while path.exists():
        count += 1
        path = base / f"{name}-{stamp}-{count}"
    return path


class Writer:
    """Writes one run's folder; a context for one open file."""

    def __init__(self, path: Path):
        if path.exists() and any(path.iterdir()):
            raise BadOption(f"The folder {path} already holds something; name another one with run_dir.")
        self.path = path.absolute()
        self._metrics: Any = None

    def begin(self, graph: Graph, plan: Plan, algorithm: Algorithm, seed: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        config = {
            "algorithm": type(algorithm).__name__.lower(),
            "options": dataclasses.asdict(algorithm),
            "environment": graph.environment,
            "seed": seed,
            "iterations": graph.iterations,
            "steps": graph.prefill_steps + graph.iterations * graph.steps_per_iteration,
            "per_replica": list(plan.per_replica),
            "versions": {
                name: importlib.metadata.version(name) for name in ("motet", "jax", "jaxlib", "optax", "flax")
            },
        }
        (self.path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (self.path / "plan.json").write_text(plan.to_json() + "\n")
        self._metrics = (self.path / "metrics.jsonl").open("w", buffering=1)

    def row(self, row: Row) -> None:
        if self._metrics is not None:
            self._metrics.write(json.dumps(row) + "\n")

    def policy(self, policy: Policy) -> None:
        policy.save(self.path)

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
