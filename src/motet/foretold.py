"""What the planner foretold of a run, beside what came: for each part, each link, and the whole.

A run that the planner chose a plan for leaves `prediction.json` in its folder. What was off by more than a quarter is
said, with the term that was off most; `motet calibrate RUN` corrects the profile by it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.engine.estimate import Estimate
from motet.engine.power import Energy
from motet.engine.rehearse import schedules_of
from motet.engine.stopwatch import calls_of
from motet.engine.timeline import Lane
from motet.flow.describe import table
from motet.flow.graph import Graph
from motet.plan.keys import call_key
from motet.plan.plan import Plan
from motet.runs.callback import Beginning, Callback
from motet.runs.progress import speed

FILE = "prediction.json"
OFF = 0.25
"""A prediction that is off by more than this share says so."""


@dataclass(frozen=True)
class Term:
    """Something that a part does in an iteration."""

    part: str
    what: str
    predicted: float
    """Seconds."""
    measured: float
    key: str = ""
    """Under which a profile has it; empty: it does not."""


@dataclass(frozen=True)
class Comparison:
    """Predicted beside measured."""

    predicted: float
    """Environment steps a second."""
    measured: float
    terms: tuple[Term, ...]
    predicted_watts: float
    measured_watts: float | None
    """None: this machine does not count what it draws."""
    profile: str = ""
    """The key of the profile that the prediction was made from."""

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1 if self.measured else 0.0

    @property
    def worst(self) -> Term | None:
        """The term that was off by the most seconds."""
        return max(self.terms, key=lambda term: abs(term.predicted - term.measured), default=None)

    @property
    def warning(self) -> str:
        """Empty if the prediction was good."""
        if abs(self.error) <= OFF or self.worst is None:
            return ""
        worst = self.worst
        return (
            f"The planner foretold {self.predicted:,.0f} steps/s and {self.measured:,.0f} came ({self.error:+.0%}), "
            f"most of all because of {worst.what} of {worst.part}: {_ms(worst.predicted)} foretold, "
            f"{_ms(worst.measured)} measured in an iteration. `motet calibrate` corrects the profile by it."
        )

    def lines(self) -> list[str]:
        """For a terminal."""
        rows = [(term.part, term.what, _ms(term.predicted), _ms(term.measured)) for term in self.terms]
        rows.append(("all", "steps/s", f"{self.predicted:,.0f}", f"{self.measured:,.0f}"))
        drawn = f"{self.measured_watts:,.0f} W measured" if self.measured_watts is not None else "not measured here"
        watts = f"power: {self.predicted_watts:,.0f} W modelled, {drawn}"
        return [*table(("part", "does", "predicted", "measured"), rows, "<<>>"), watts]

    def to_json(self) -> str:
        data = {**vars(self), "error": self.error, "terms": [vars(term) for term in self.terms]}
        return json.dumps(data, indent=2)

    @staticmethod
    def from_json(text: str) -> Comparison:
        data = json.loads(text)
        data.pop("error")
        return Comparison(**{**data, "terms": tuple(Term(**each) for each in data["terms"])})


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1e3, 6):,.3g} ms"  # what is left of a difference of sums is nothing


def compare(
    graph: Graph, predicted: Estimate, result: Any, profile: str = "", watts: float | None = None
) -> Comparison | None:
    """None for a run that was too short to say."""
    measured = speed(result.history[0], result.history[-1]) if len(result.history) > 1 else None
    if not measured:
        return None
    iteration = graph.steps_per_iteration / measured
    seen = parts_of(result.timeline, iteration)
    keys = _keys(graph, predicted.plan)
    terms = []
    for part, each in predicted.parts.items():
        came = seen.get(part, {})
        if WHOLE in came:
            came[next(what for what in each.busy if what != "environments")] = came.pop(WHOLE)
        for what, seconds in each.busy.items():
            terms.append(Term(part, what, seconds, came.get(what, 0.0), keys.get((part, what), "")))
        waited = sum(each.waited.values())
        terms.append(Term(part, "waiting", waited, max(0.0, iteration - sum(came.values()))))
    return Comparison(predicted.steps_per_second, measured, tuple(terms), predicted.watts, watts, profile)


def parts_of(lanes: Sequence[Lane], iteration: float) -> dict[str, dict[str, float]]:
    """Fragment -> what its first replica did -> seconds in an iteration: which share of the time that it was looked at,
    of an iteration's length. Steps of environments inside of a call are not counted as part of the call."""
    found: dict[str, dict[str, float]] = {}
    for lane in lanes:
        if lane.fragment in found or not lane.spans:
            continue
        seen = max(span.end for span in lane.spans) - min(span.start for span in lane.spans)
        sums: dict[str, float] = {}
        for span in lane.spans:
            if span.kind == "wait":
                continue
            sums[_what(span)] = sums.get(_what(span), 0.0) + span.end - span.start
        calls = [span for span in lane.spans if span.kind == "compute"]
        steps = [span for span in lane.spans if span.kind == "environments"]
        for call in calls:
            inner = sum(each.end - each.start for each in steps if call.start <= each.start and each.end <= call.end)
            sums[_what(call)] -= inner
        found[lane.fragment] = {what: seconds / seen * iteration for what, seconds in sums.items()} if seen else {}
    return found


def _what(span: Any) -> str:
    """As the estimate calls it."""
    if span.kind == "environments":
        return "environments"
    if span.kind in ("send", "receive"):
        return f"{span.kind} {span.name.partition(':')[0]}"
    return WHOLE if span.name.startswith("iteration ") else span.name


WHOLE = "the training loop"


def _keys(graph: Graph, plan: Plan) -> dict[tuple[str, str], str]:
    """(part, what it does) -> the key of the profile."""
    found = {}
    alone = sum(each.replicas for each in plan.fragments.values()) == 1
    for name, schedule in schedules_of(graph, plan).items():
        fragment = plan.fragments[name]
        whole = alone and schedule.whole is not None
        for call in (schedule.whole,) if whole and schedule.whole else calls_of(schedule.body):
            found[name, call.label] = f"calls {call_key('cpu', call, fragment.shards, whole)}"
        found[name, "environments"] = f"environments {fragment.workers}"
    return found


class Foretold(Callback):
    """Writes what was foretold beside what came into the run's folder."""

    def __init__(self, predicted: Estimate, profile: str):
        self.predicted, self.profile = predicted, profile
        self.run: Beginning | None = None
        self.energy: Energy | None = None
        self.comparison: Comparison | None = None

    def begin(self, run: Beginning) -> None:
        self.run, self.energy = run, Energy.begin()

    def usage(self, usage: Mapping[str, float]) -> None:
        """Looked at often enough that no counter wraps twice unseen."""
        if self.energy is not None:
            self.energy.joules()

    def end(self, outcome: Any) -> None:
        if self.run is None or isinstance(outcome, BaseException):
            return
        watts = self.energy.watts() if self.energy is not None else None
        self.comparison = compare(self.run.graph, self.predicted, outcome, self.profile, watts)
        if self.comparison is not None and self.run.run_dir is not None:
            with contextlib.suppress(OSError):
                (self.run.run_dir / FILE).write_text(self.comparison.to_json() + "\n", encoding="utf-8")
