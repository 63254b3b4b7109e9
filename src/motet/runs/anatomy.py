"""What a run's report shows besides its curve: the loop with its fragments, what they did, what went over their links.

graph.svg       the loop, coloured by fragment
links.json      messages and bytes of every link, as the plan's table says them and as they were counted
timeline.json   what each replica did in a few early iterations
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.flow.draw import svg
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from motet.runs.callback import Beginning, Callback

GRAPH, LINKS, TIMELINE = "graph.svg", "links.json", "timeline.json"


@dataclass
class Anatomy(Callback):
    """Writes it into the run's folder. Where that fails, the run goes on without it."""

    run: Beginning | None = None

    def begin(self, run: Beginning) -> None:
        self.run = run
        self._write(GRAPH, svg(run.graph, run.plan.homes(run.graph)))

    def end(self, outcome: Any) -> None:
        """A result has links and a timeline; of an error there is nothing to tell."""
        if self.run is None or isinstance(outcome, BaseException):
            return
        told = links(self.run.graph, self.run.plan, outcome.links, outcome.iterations)
        self._write(LINKS, json.dumps(told, indent=2) + "\n")
        self._write(TIMELINE, json.dumps(timeline(outcome.timeline), separators=(",", ":")) + "\n")

    def _write(self, name: str, text: str) -> None:
        assert self.run is not None
        if self.run.run_dir is None:
            return
        with contextlib.suppress(OSError):
            (self.run.run_dir / name).write_text(text, encoding="utf-8")


def links(graph: Graph, plan: Plan, used: Sequence[Any], iterations: int) -> dict[str, Any]:
    """What the plan's table says of every link for so many iterations, beside what was counted (`LinkUse`s)."""
    measured = {(each.link, each.source, each.target): each for each in used}
    rows = []
    for row in traffic(graph, plan, project(graph, plan), iterations):
        use = measured.get((row.link, row.source, row.target))
        counted: Mapping[str, Any] | None = use and {"messages": use.messages, "bytes": use.bytes}
        rows.append(
            {
                "link": row.link,
                "source": row.source,
                "target": row.target,
                "rate": row.rate,
                "lag": row.lag,
                "predicted": {"messages": row.messages, "bytes": row.bytes},
                "measured": counted,
                "ages": {str(age): count for age, count in use.lags.items()} if use else {},
            }
        )
    return {"iterations": iterations, "links": rows}


def timeline(lanes: Sequence[Any]) -> dict[str, Any]:
    """`Result.timeline` as plain data, in whole microseconds from its first moment on."""
    origin = min((span.start for lane in lanes for span in lane.spans), default=0.0)
    return {"unit": "microseconds", "lanes": [_lane(lane, origin) for lane in lanes]}


def _lane(lane: Any, origin: float) -> dict[str, Any]:
    """Each name is written once."""
    names = list(dict.fromkeys(span.name for span in lane.spans))
    places = {name: place for place, name in enumerate(names)}
    spans = [
        [span.kind, places[span.name], round((span.start - origin) * 1e6), round((span.end - origin) * 1e6)]
        for span in lane.spans
    ]
    return {"name": lane.name, "fragment": lane.fragment, "names": names, "spans": spans}
