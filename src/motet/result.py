"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motet import bounds
from motet.engine.ledger import Account
from motet.engine.run import LinkUse
from motet.engine.timeline import Lane
from motet.errors import BadOption, UnknownName
from motet.plan.plan import Plan
from motet.runs.evaluated import Evaluated
from motet.runs.metrics import Row
from motet.runs.policy import Policy
from motet.runs.progress import speed

if TYPE_CHECKING:
    from motet.foretold import Comparison


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
    timeline: tuple[Lane, ...] = ()
    """What each replica did in a few early iterations: when it computed, waited, sent and received."""
    run_dir: Path | None = None
    outside: bounds.Outside = field(default_factory=bounds.Outside)
    """Observations of host environments outside of the bounds that their space declares."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    """What evaluations during training gave: `eval/return` and others, over iterations and steps."""
    best: Evaluated | None = None
    """The best of them, with its policy."""
    stopped: str = ""
    """Why the run ended before its time; empty, if it did not."""
    recoveries: tuple[Any, ...] = ()
    """Of a run over hosts: what was lost and replaced, each with its `cause`, the `iteration` from which the run went
    on, and the `seconds` that it cost."""
    warnings: tuple[str, ...] = ()
    """What went wrong without ending the run."""
    foretold: Comparison | None = None
    """What the planner foretold beside what came, if it chose the plan."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The last value of every metric."""
        last: dict[str, Any] = {}
        for row in self.history:
            last.update({name: value for name, value in row.items() if value is not None})
        return last

    def column(self, name: str) -> np.ndarray:
        """One metric over all rows of the history [rows]; NaN where a row lacks it."""
        known = dict.fromkeys(name for row in self.history for name in row)
        if name not in known:
            raise UnknownName("column", name, known)
        return np.asarray([np.nan if row.get(name) is None else row[name] for row in self.history], float)

    def to_pandas(self) -> Any:
        """The history as a DataFrame of pandas, which motet itself does not need."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise BadOption("to_pandas needs pandas: pip install pandas. Result.column gives arrays without.") from None
        return DataFrame(self.history)

    def __repr__(self) -> str:
        rate = speed(self.history[0], self.history[-1]) if self.history else None
        score = self.metrics.get("return")
        lines = {
            "trained": f"{type(self.policy.algorithm).__name__}, plan {self.plan.name}",
            "steps": f"{self.steps:,} in {self.iterations:,} iterations" + (f", {rate:,.0f} steps/s" if rate else ""),
            "time": f"{self.seconds:.1f} s, {self.compile_seconds:.1f} s of it compiling",
            "return": "no episode has ended" if score is None else f"{score:.1f} while training",
            "stopped": self.stopped,
            "best": f"{self.best.scores} after {self.best.steps:,} steps" if self.best else "",
            "run folder": str(self.run_dir) if self.run_dir else "",
            "warning": "; ".join([*self.warnings, *([str(self.outside)] if self.outside else [])]),
        }
        return "\n".join(f"{name:<12}{value}" for name, value in lines.items() if value)
