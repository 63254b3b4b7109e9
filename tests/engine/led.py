"""A run that a driver leads, in a test: whoever watches it, its cuts, and what came of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import motet
from motet.engine.assemble import Settings
from motet.engine.cut import RunCut
from motet.engine.hosts.cuts import Cuts
from motet.engine.hosts.driver import Driver, Patience
from motet.engine.hosts.reach import Launcher
from motet.engine.hosts.task import HostedRun
from motet.engine.run import Outcome, Reporter, gather
from motet.plan.hosts import members
from motet.plan.plan import Plan
from motet.runs.metrics import Meter
from tests.laws.cases import traced

ROUNDS = 6


class Led:
    """One run over hosts."""

    def __init__(
        self,
        algorithm: Any,
        plan: Plan,
        launcher: Launcher,
        *,
        env: Any = None,
        every: float = 1e9,
        iterations: int = ROUNDS,
        settings: Settings | None = None,
        **options: Any,
    ):
        """Cuts are taken `every` so many seconds."""
        env = env if env is not None else motet.make("CartPole-v1")
        self.graph = graph = traced(algorithm, plan, env, iterations)
        self.seen: list[np.ndarray] = []
        self.said: list[str] = []
        self.cuts: list[RunCut] = []
        self.meter = Meter(graph.steps_per_iteration, graph.prefill_steps, lambda row: None, self.said.append)
        reporter = Reporter(graph, plan, self)
        self.meter.use(reporter.columns.names, reporter.columns.every)
        workers = sum(members(plan, name) for name in plan.fragments)
        cuts = Cuts(workers, self.meter.state, self.cuts.append, every)
        task = HostedRun.of(algorithm, env, plan, graph, settings or Settings(seed=1))
        patience = options.pop("patience", Patience(10, 60, 3))
        self.driver = Driver(task, plan, launcher, reporter, cuts, patience, **options)
        self.iterations = iterations
        self.outcome: Outcome | None = None
        self.state: list[np.ndarray] = []
        """The learner state at the end."""

    def status(self, text: str) -> None:
        self.said.append(text)

    def rows(self, first: int, rows: np.ndarray) -> None:
        self.seen += list(rows)
        self.meter.rows(first, rows)

    def run(self) -> list[np.ndarray]:
        """To the end -> the learner state."""
        self.outcome = self.driver.run(self.iterations)
        self.state = jax.tree.leaves(gather(self.graph, self.outcome, "learner"))
        return self.state
