"""The end of a run before its time: a condition on its metrics, and an iteration at which everybody stops.

The iteration follows from the row that met the condition and from the plan, not from the clock: two runs of one
configuration stop at the same step. Evaluations count from where they are of, since whoever has a condition waits for
them. (Only where a link takes the latest value, or evaluations come at times, is there nothing to repeat.)
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.engine.run import Reporter
from motet.errors import BadOption, UnknownName
from motet.runs.evaluated import CURVES, Evaluated
from motet.runs.metrics import Row

LOOKS = 1000
"""Into so many stretches a run is cut, at whose ends a condition on rows may stop it. Iterations that are one call are
not cut more finely."""
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
FORM = re.compile(r"\s*(?P<name>[\w./-]+)\s*(?P<how>>=|<=|>|<)\s*(?P<number>[^\s]+)\s*")
Condition = Callable[[Row], bool]


@dataclass(frozen=True)
class Threshold:
    """A column and what it is compared with. What a row lacks meets no condition."""

    name: str
    how: str
    number: float

    @classmethod
    def read(cls, text: str) -> Threshold:
        found = FORM.fullmatch(text)
        try:
            number = float(found["number"]) if found else math.nan
        except ValueError:
            number = math.nan
        if found is None or math.isnan(number):
            raise BadOption(
                f"stop_when must be a column, one of {' '.join(COMPARISONS)}, and a number, as 'eval/return >= 475'; "
                f"got {text!r}."
            )
        return cls(found["name"], found["how"], number)

    def __call__(self, row: Row) -> bool:
        value = row.get(self.name)
        return value is not None and COMPARISONS[self.how](value, self.number)

    def __str__(self) -> str:
        return f"{self.name} {self.how} {self.number:g}"

    def check(self, columns: Collection[str], evaluates: bool) -> None:
        """Refuse what no row will ever have."""
        if self.name.startswith("eval/") and not evaluates:
            raise BadOption(
                f"stop_when looks at {self.name}, but nothing is evaluated during training: say how often, with "
                "eval_steps or eval_seconds."
            )
        known = {*columns, *(CURVES if evaluates else ())}
        if self.name not in known:
            raise UnknownName("column for stop_when", self.name, known)


class Stopper:
    """A visitor that ends the run when a condition is met. It is told of rows and evaluations too."""

    def __init__(self, condition: Condition, reporter: Reporter):
        self.condition, self.reporter = condition, reporter
        plan = reporter.plan
        self.every = max(1, reporter.graph.iterations // LOOKS)
        lags = [link.lag for link in plan.links.values() if isinstance(link.lag, int)]
        parts = sum(fragment.replicas for fragment in plan.fragments.values())
        self.ahead = 0 if parts == 1 else len(plan.fragments) + sum(lags)
        """How many iterations any worker can be before any other."""
        self.repeats = len(lags) == len(plan.links)
        """Whether that is all: who takes the latest value may be anywhere."""
        self.evaluated: dict[str, float] = {}
        self.row_before: Row = {}
        self.met_at: int | None = None
        """After how many iterations the condition was met."""
        self.target: int | None = None

    def limit(self, iteration: int) -> int | None:
        return self.every - iteration % self.every

    def row(self, row: Row) -> None:
        self.row_before = row
        self._look(int(row["iteration"] or 0), {**row, **self.evaluated})

    def evaluation(self, evaluated: Evaluated) -> None:
        self.evaluated = evaluated.curves()
        now: Row = {"iteration": evaluated.iteration, "steps": evaluated.steps}
        self._look(evaluated.iteration, {**self.row_before, **now, **self.evaluated})

    def _look(self, iteration: int, row: Row) -> None:
        if self.met_at is None and self.condition(row):
            self.met_at = iteration

    def visit(self, performer: Performer, done: Done) -> None:
        if self.end is None or self.target is not None:
            return
        with self.reporter.meeting.lock:
            if self.target is None:
                self.target = max(self.end, self.reporter.meeting.soonest(performer.worker.name))
                self.reporter.end_at(self.target)

    @property
    def end(self) -> int | None:
        """After how many iterations the run is to end, if the condition was met."""
        return None if self.met_at is None else self._end_for(self.met_at)

    def reach(self, told: int) -> int | None:
        """After how many iterations a learner must wait that is not here, while rows of `told` ones are known; None: it
        need not. Then nobody has passed the end when the next row meets the condition."""
        if not self.repeats:
            return None
        return self._end_for(told + 1 if self.met_at is None else self.met_at) - self.ahead

    def _end_for(self, iteration: int) -> int:
        return math.ceil((iteration + self.ahead) / self.every) * self.every

    @property
    def reason(self) -> str:
        """Why the run ended early; empty, if it did not."""
        if self.target is None or self.met_at is None or self.reporter.until >= self.reporter.graph.iterations:
            return ""
        steps = self.reporter.graph.steps_after(self.met_at)
        words = self.condition if isinstance(self.condition, Threshold) else "the condition of stop_when"
        return f"{words} held after {steps:,} steps"
