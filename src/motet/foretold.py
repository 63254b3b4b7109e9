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

from motet.engine.charges import is_rested
from motet.engine.estimate import Estimate
from motet.engine.power import Energy
from motet.engine.rehearse import schedules_of
from motet.engine.stopwatch import calls_of
from motet.engine.timeline import Lane
from motet.flow.describe import table
from motet.flow.graph import Graph
from motet.plan.keys import asked, call_key
from motet.plan.machine import kind_named
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from motet.plan.spread import kind_of
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
class Carried:
    """What goes over a link."""

    link: str
    predicted: float
    """Bytes a second."""
    measured: float


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
    links: tuple[Carried, ...] = ()
    watts_without: str = ""
    """The kinds of devices that the run used and the measured watts leave out, since nothing counts what they draw."""

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1 if self.measured else 0.0

    @property
    def worst(self) -> Term | None:
        """The term that was off by the most seconds. Who waits does so for others, so what they do comes first, unless
        it explains less than half."""
        done = max((term for term in self.terms if term.what != ELSE), key=_off, default=None)
        left = max((term for term in self.terms if term.what == ELSE), key=_off, default=None)
        if done is None or left is None:
            return done or left
        return done if _off(done) >= _off(left) / 2 else left

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
        rows += [("link", each.link, _rate(each.predicted), _rate(each.measured)) for each in self.links]
        rows.append(("all", "steps/s", f"{self.predicted:,.0f}", f"{self.measured:,.0f}"))
        drawn = f"{self.measured_watts:,.0f} W measured" if self.measured_watts is not None else "not measured here"
        if self.measured_watts is not None and self.watts_without:
            drawn += f" without {self.watts_without}, for which nothing counts here"
        watts = f"power: {self.predicted_watts:,.0f} W modelled, {drawn}"
        return [*table(("part", "does", "predicted", "measured"), rows, "<<>>"), watts]

    def to_json(self) -> str:
        terms, links = ([vars(each) for each in found] for found in (self.terms, self.links))
        data = {**vars(self), "error": self.error, "terms": terms, "links": links}
        return json.dumps(data, indent=2)

    @staticmethod
    def from_json(text: str) -> Comparison:
        data = json.loads(text)
        data.pop("error")
        terms, links = (Term(**each) for each in data["terms"]), (Carried(**each) for each in data["links"])
        return Comparison(**{**data, "terms": tuple(terms), "links": tuple(links)})


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:,.3g} MB/s"


def _off(term: Term) -> float:
    return abs(term.predicted - term.measured)


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1e3, 6):,.3g} ms"  # what is left of a difference of sums is nothing


def compare(
    graph: Graph,
    predicted: Estimate,
    result: Any,
    profile: str = "",
    watts: float | None = None,
    without: str = "",
) -> Comparison | None:
    """None for a run that was too short to say."""
    measured = speed(result.history[0], result.history[-1]) if len(result.history) > 1 else None
    if not measured:
        return None
    iteration = graph.steps_per_iteration / measured
    seen = parts_of(result.timeline, iteration)
    keys = _keys(graph, predicted.plan)
    terms: list[Term] = []
    for part, each in predicted.parts.items():
        came = seen.get(part, {})
        if WHOLE in came:
            came[next(what for what in each.busy if what != "environments")] = came.pop(WHOLE)
        done = {what: seconds for what, seconds in each.busy.items() if what not in UNSEEN}
        terms += [
            Term(part, what, seconds, came.get(what, 0.0), keys.get((part, what), "")) for what, seconds in done.items()
        ]
        left = max(0.0, predicted.iteration_seconds - sum(done.values()))
        terms.append(Term(part, ELSE, left, max(0.0, iteration - sum(came.values()))))
    links = _carried(predicted, result, iteration)
    return Comparison(
        predicted.steps_per_second, measured, tuple(terms), predicted.watts, watts, profile, links, without
    )


def _carried(predicted: Estimate, result: Any, iteration: float) -> tuple[Carried, ...]:
    """What was counted at each link's ends, beside what was expected to go over it."""
    came = {f"{each.link}: {each.source} -> {each.target}": each.bytes for each in result.links}
    seconds = result.iterations * iteration
    return tuple(Carried(name, rate, came.get(name, 0) / seconds) for name, rate in predicted.links.items())


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
ELSE = "waiting and all else"
UNSEEN = ("report", "ask")
"""What a timeline does not show by itself."""


def _keys(graph: Graph, plan: Plan) -> dict[tuple[str, str], str]:
    """(part, what it does) -> the key of the profile."""
    import jax

    found, usual = {}, kind_named(jax.default_backend())
    alone = sum(each.replicas for each in plan.fragments.values()) == 1
    for name, schedule in schedules_of(graph, plan).items():
        fragment = plan.fragments[name]
        whole = alone and schedule.whole is not None
        asks = 0.0
        for call in (schedule.whole,) if whole and schedule.whole else calls_of(schedule.body):
            found[name, call.label] = f"calls {call_key(kind_of(fragment, usual), call, fragment.shards, whole)}"
            asks = max(asks, asked(call.body))
        rested = is_rested(fragment, asks or 1, alone)
        found[name, "environments"] = f"{'rested' if rested else 'environments'} {fragment.workers}"
    for program in project(graph, plan).values():
        for wire, _ in wires(program.body):
            found[wire.source, f"send {wire.link}"] = f"messages send {wire.link}"
            found[wire.target, f"receive {wire.link}"] = f"messages receive {wire.link}"
    return found


def _kinds(plan: Plan) -> set[str]:
    """Of the devices that a plan computes on here."""
    import jax

    usual = kind_named(jax.default_backend())
    return {"cpu" if each.outside else kind_of(each, usual) for each in plan.fragments.values()}


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
        without = " and ".join(self.energy.without(_kinds(self.predicted.plan))) if self.energy is not None else ""
        self.comparison = compare(self.run.graph, self.predicted, outcome, self.profile, watts, without)
        if self.comparison is not None and self.run.run_dir is not None:
            with contextlib.suppress(OSError):
                (self.run.run_dir / FILE).write_text(self.comparison.to_json() + "\n", encoding="utf-8")
