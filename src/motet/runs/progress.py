"""What is known of a run while it goes on: for whoever shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motet.runs.callback import Beginning
from motet.runs.diverging import NOT_LOSSES
from motet.runs.glyphs import Point, duration, resample
from motet.runs.metrics import Row

MOST_POINTS = 512
"""A curve twice as long is thinned to so many points, so that drawing it takes no longer in a long run."""
QUIET = 5.0
"""Seconds after which a run that says nothing is asked what it does, unless its rows are always as rare."""
MEASURED = 0.2
"""Seconds between two rows that a speed is worth saying for."""


@dataclass(frozen=True)
class FragmentActivity:
    """What a fragment did of late."""

    name: str
    iteration_seconds: float | None
    computing: float | None
    """The share of the time in which it waited for nobody; None where nobody asks."""
    waiting: Mapping[str, float]
    """For whom else, and for which share; largest first."""


@dataclass(frozen=True)
class LinkUsage:
    """What went over a link of late."""

    link: str
    source: str
    target: str
    bytes_per_second: float | None
    depth: float | None
    lag: float | None


@dataclass
class Progress:
    """What is known of a run so far. Whoever uses it holds the lock."""

    clock: Callable[[], float] = time.monotonic
    title: str = ""
    total: int = 0
    began: float = 0.0
    ended: float | None = None
    evaluates: bool = False
    saves: bool = False
    waits: bool = False
    """Whether there are parts that wait for something."""
    fragments: tuple[str, ...] = ()
    links: tuple[tuple[str, str, str], ...] = ()
    """Of those that are used again and again: name, from, to."""
    first: Row | None = None
    """The first row after something was compiled: speed is measured from there."""
    last: Row = field(default_factory=dict)
    episodes: int = 0
    curve: list[Point] = field(default_factory=list)
    evaluations: list[Point] = field(default_factory=list)
    spread: float = 0.0
    """Standard deviation of the returns of the last evaluation."""
    best: Point | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    saved: float | None = None
    """When the last checkpoint was written, or read."""
    doing: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Fragment -> what it says it does, and since when; a run of one fragment has no name for it."""
    heard: float = 0.0
    """When something last came to its end."""
    gap: float = 0.0
    """Seconds between the last two rows."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, run: Beginning) -> None:
        with self.lock:
            hosts = f" on {run.plan.hosts} hosts" if run.plan.hosts > 1 else ""
            self.title = f"{run.graph.algorithm} on {run.graph.environment}, plan {run.plan.name}{hosts}"
            self.total, self.began = run.total_steps, self.clock()
            self.heard = self.began
            self.evaluates = any(run.how.get(f"eval_{name}") is not None for name in ("steps", "seconds"))
            self.saves = run.run_dir is not None and bool(run.how.get("keep", True))
            self.waits = run.waits
            self.fragments, self.links = tuple(run.plan.fragments), tuple(run.links)
            for row in run.history:
                self.row(row)
            self.first, self.gap = None, 0.0
            for each in run.evaluations:
                self._evaluated(each)
            self.saved = self.began if run.first_iteration else None

    def status(self, text: str) -> None:
        who, colon, what = text.partition(": ")
        with self.lock:
            self.doing[who if colon else ""] = (what if colon else text, self.clock())
            if self.compiling:
                self.first = None

    def row(self, row: Row) -> None:
        with self.lock:
            self.gap, self.heard = self.clock() - self.heard, self.clock()
            self.first = self.first or row
            self.last = {**self.last, **{name: value for name, value in row.items() if value is not None}}
            self.episodes += int(row.get("episodes") or 0)
            score = row.get("return")
            if score is not None:
                self.curve.append((float(row.get("steps") or 0), float(score)))
            if len(self.curve) > 2 * MOST_POINTS:
                self.curve = resample(self.curve, MOST_POINTS)

    def used(self, usage: Mapping[str, float]) -> None:
        """Of a link that nothing was read from since, the lag is what it was."""
        with self.lock:
            lags = {name: value for name, value in self.usage.items() if name.endswith("/lag")}
            self.usage = {**lags, **usage}

    def evaluated(self, evaluation: Any) -> None:
        with self.lock:
            self._evaluated(evaluation.row())

    def _evaluated(self, row: Mapping[str, Any]) -> None:
        point = float(row.get("steps") or 0), float(row.get("eval/return") or 0.0)
        self.evaluations.append(point)
        self.spread = float(row.get("eval/return_std") or 0.0)
        if self.best is None or point[1] > self.best[1]:
            self.best = point
        if len(self.evaluations) > 2 * MOST_POINTS:
            self.evaluations = resample(self.evaluations, MOST_POINTS)

    def checkpoint(self) -> None:
        with self.lock:
            self.saved = self.clock()

    def end(self) -> None:
        with self.lock:
            self.ended = self.clock() if self.ended is None else self.ended

    @property
    def now(self) -> float:
        return self.clock() if self.ended is None else self.ended

    @property
    def steps(self) -> int:
        return int(self.last.get("steps") or 0)

    @property
    def elapsed(self) -> float:
        return self.now - self.began

    @property
    def speed(self) -> float | None:
        """Steps a second since something was compiled last; none before there is enough to tell."""
        if self.first is None:
            return None
        if self.first["steps"] == self.last.get("steps"):
            return self.last.get("steps_per_second")
        seconds = (self.last.get("seconds") or 0) - (self.first.get("seconds") or 0)
        return speed(self.first, self.last) if seconds >= MEASURED or self.ended is not None else None

    @property
    def left(self) -> float | None:
        return max(0, self.total - self.steps) / self.speed if self.speed and self.ended is None else None

    @property
    def losses(self) -> dict[str, float]:
        names = sorted(self.last.keys() - NOT_LOSSES, key=lambda name: (name != "loss", "loss" not in name, name))
        return {name: float(self.last[name] or 0) for name in names}

    @property
    def parts(self) -> list[FragmentActivity]:
        """What each fragment did of late."""
        found = []
        for name in self.fragments:
            waiting = {
                key.removeprefix(f"{name}/waiting/"): share
                for key, share in self.usage.items()
                if key.startswith(f"{name}/waiting/")
            }
            ordered = dict(sorted(waiting.items(), key=lambda item: -item[1]))
            seconds, computing = (self.usage.get(f"{name}/{what}") for what in ("iteration_seconds", "computing"))
            found.append(FragmentActivity(name, seconds, computing, ordered))
        return found

    @property
    def flows(self) -> list[LinkUsage]:
        """What went over each link of late. A link between several fragments is counted as one."""
        what = ("bytes_per_second", "depth", "lag")
        return [LinkUsage(*link, *(self.usage.get(f"{link[0]}/{each}") for each in what)) for link in self.links]

    @property
    def restarts(self) -> int:
        return int(self.last.get("restarts") or 0)

    @property
    def compiling(self) -> list[str]:
        """What is being compiled now, each thing once: the replicas of a fragment compile the same."""
        found = []
        for who, (what, _) in self.doing.items():
            if what.startswith("compiling"):
                fragment = who.partition("[")[0]
                found.append(what.removeprefix("compiling").strip() + (f" for {fragment}" if fragment else ""))
        return list(dict.fromkeys(found))

    @property
    def heartbeat(self) -> str:
        """What the run does, if nothing comes to its end meanwhile; else empty."""
        if self.ended is not None:
            return ""
        if self.compiling:
            since = min(when for what, when in self.doing.values() if what.startswith("compiling"))
            return f"compiling {', '.join(self.compiling)}, {duration(self.now - since)}"
        told = self.doing.get("", ("", 0.0))[0]
        if told.startswith("stopping"):
            return told
        silent = self.now - self.heard
        if silent < max(QUIET, 4 * self.gap):
            return ""
        running = dict.fromkeys(
            (f"{who.partition('[')[0]}: " if who else "") + what for who, (what, _) in self.doing.items()
        )
        return f"nothing new for {duration(silent)}" + (f"; {', '.join(running)}" if running else "; starting")


def speed(first: Row | None, last: Row) -> float | None:
    """Steps a second between two rows; from one row alone, what it says of itself."""
    if first and (seconds := (last.get("seconds") or 0) - (first.get("seconds") or 0)) > 0:
        return ((last.get("steps") or 0) - (first.get("steps") or 0)) / seconds
    return last.get("steps_per_second")
