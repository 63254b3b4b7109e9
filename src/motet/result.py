"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet import bounds
from motet.engine.ledger import Account
from motet.engine.run import LinkUse
from motet.plan.plan import Plan
from motet.runs.metrics import Row
from motet.runs.policy import Policy
from motet.runs.progress import speed


@dataclass(frozen=True, repr=False)
class Result:
    """A trained policy and how it came about. Printed, it is a short table."""

    policy: Policy
    state: Any
    """The learner state: parameters, optimiser state, counters."""
    history: list[Row]
    """Metrics over time: a row for each of the first iterations, later for every 2nd, 4th, ..."""
    steps: int
    """Environment steps that were really taken."""
    iterations: int
    seconds: float
    compile_seconds: float
    """What the busiest replica spent compiling; replicas compile side by side."""
    plan: Plan
    links: tuple[LinkUse, ...]
    """What went over each link, and how old it was when it was read."""
    accounts: tuple[Account, ...] = ()
    """How fast each replica went, and whom it waited for; empty where there is one alone."""
    run_dir: Path | None = None
    outside: bounds.Outside = field(default_factory=bounds.Outside)
    """Observations of host environments outside of the bounds that their space declares."""
    warnings: tuple[str, ...] = ()
    """What went wrong without ending the run."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The last value of every metric."""
        last: dict[str, Any] = {}
        for row in self.history:
            last.update({name: value for name, value in row.items() if value is not None})
        return last

    def __repr__(self) -> str:
        rate = speed(self.history[0], self.history[-1]) if self.history else None
        score = self.metrics.get("return")
        lines = {
            "trained": f"{type(self.policy.algorithm).__name__}, plan {self.plan.name}",
            "steps": f"{self.steps:,} in {self.iterations:,} iterations" + (f", {rate:,.0f} steps/s" if rate else ""),
            "time": f"{self.seconds:.1f} s, {self.compile_seconds:.1f} s of it compiling",
            "return": "no episode has ended" if score is None else f"{score:.1f} while training",
            "run folder": str(self.run_dir) if self.run_dir else "",
            "warning": "; ".join([*self.warnings, *([str(self.outside)] if self.outside else [])]),
        }
        return "\n".join(f"{name:<12}{value}" for name, value in lines.items() if value)
