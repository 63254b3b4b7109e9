"""From what each iteration reports to a curve that people can read. It grows by the logarithm of a run's length."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Row = dict[str, float | int | None]
EPISODES = ("episodes.count", "episodes.return", "episodes.length")
"""The first columns of every row: how many episodes ended in an iteration, and the sums over them."""
RESTARTS = "restarts"
"""How many workers of host environments died and were started anew; shown as the sum over the run."""
WINDOW = 100
COLUMNS = ("iteration", "steps", "seconds", "steps_per_second", "episodes", "return", "length")
"""What every row has besides the algorithm's own columns."""


class Window:
    """The last iterations in which at least `WINDOW` episodes ended."""

    def __init__(self) -> None:
        self.rows: deque[np.ndarray] = deque()
        self.total = np.zeros(len(EPISODES))

    def add(self, rows: np.ndarray) -> None:
        for row in rows[rows[:, 0] > 0]:
            self.rows.append(row)
            self.total = self.total + row
            while self.total[0] - self.rows[0][0] >= WINDOW:
                self.total = self.total - self.rows.popleft()

    def mean(self, column: int) -> float | None:
        """A sum over the window's episodes, for each of them."""
        return float(np.sum([row[column] for row in self.rows]) / self.total[0]) if self.rows else None


@dataclass
class Meter:
    """Makes rows of what iterations report, and keeps the history of all of them.

    Which iterations end a row depends on their numbers alone (see `stretch`), never on the clock: two runs of one
    configuration have the same rows, and a short run has a curve.
    """

    steps_per_iteration: int
    prefill_steps: int
    on_row: Callable[[Row], None]
    on_status: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    history: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.heard = self.closed = self.clock()
        self.iteration = self.last_iteration = 0
        self.compiled = False
        self.names: Sequence[str] = ()
        self.every = np.ones(0, int)
        self.sums = np.zeros(0)
        self.counts = np.zeros(0, int)
        self.episodes = Window()
        self.restarts = 0
        self.lock = threading.Lock()

    def use(self, names: Sequence[str], every: Sequence[int]) -> None:
        """Say what the columns of the rows are, before the first one comes, and in which iterations each of them means
        something: in every so-manieth."""
        self.names, self.every = names, np.asarray(every)
        self.sums, self.counts = np.zeros(len(names)), np.zeros(len(names), int)

    def status(self, text: str) -> None:
        self.on_status(text)

    def rows(self, first: int, rows: np.ndarray) -> None:
        """Take the metrics of iterations `first`, `first + 1`, ... [n, metrics], which took equal times."""
        rows = np.asarray(rows, float)  # programs report what they compute in; sums must not depend on that
        with self.lock:
            now, done = self.clock(), 0
            while done < len(rows):
                ends = stretch(first + done)
                stop = min(len(rows), ends - first)
                self._add(first + done, rows[done:stop])
                done = stop
                if self.iteration == ends:
                    self._close(self.heard + (now - self.heard) * done / len(rows))
            self.heard = now
            if not self.compiled:  # what came before was compiling: speed is measured from here
                self.compiled, self.closed, self.last_iteration = True, now, self.iteration

    def state(self) -> tuple[int, dict[str, Any]]:
        """After how many iterations, and all that the rows to come depend on, as JSON."""
        with self.lock:
            return self.iteration, {
                "sums": self.sums.tolist(),
                "counts": self.counts.tolist(),
                "window": [row.tolist() for row in self.episodes.rows],
                "total": self.episodes.total.tolist(),
                "restarts": self.restarts,
                "seconds": self.heard - self.began,
            }

    def load(self, iteration: int, state: Mapping[str, Any], history: Sequence[Row]) -> None:
        """Go on from the state that another meter was in after so many iterations, with the rows it had made."""
        self.iteration = self.last_iteration = iteration
        self.sums, self.counts = np.asarray(state["sums"], float), np.asarray(state["counts"], int)
        self.episodes.rows = deque(np.asarray(row, float) for row in state["window"])
        self.episodes.total = np.asarray(state["total"], float)
        self.restarts = int(state["restarts"])
        self.heard = self.closed = self.clock()
        self.began = self.heard - float(state["seconds"])
        self.history[:] = history

    def finish(self) -> None:
        with self.lock:
            if self.iteration > (self.history[-1]["iteration"] or 0 if self.history else 0):
                self._close(self.heard)

    def _add(self, first: int, rows: np.ndarray) -> None:
        # One after the other, so that it does not matter how many come at once.
        self.sums = np.add.accumulate(np.concatenate([self.sums[None], rows]))[-1]
        self.episodes.add(rows[:, : len(EPISODES)])
        self.counts += (first + len(rows)) // self.every - first // self.every
        self.iteration = first + len(rows)

    def _close(self, now: float) -> None:
        sums = dict(zip(self.names, self.sums.tolist(), strict=True))
        means = self.sums / np.maximum(self.counts, 1)
        table = {
            name: mean if count else None
            for name, mean, count in zip(self.names, means.tolist(), self.counts, strict=True)
        }
        self.restarts += int(sums.get(RESTARTS, 0))
        row: Row = {
            "iteration": self.iteration,
            "steps": self.prefill_steps + self.iteration * self.steps_per_iteration,
            "seconds": round(now - self.began, 3),
            "steps_per_second": self._speed(now),
            "episodes": int(sums[EPISODES[0]]),
            "return": self.episodes.mean(1),
            "length": self.episodes.mean(2),
            **({"restarts": self.restarts} if RESTARTS in self.names else {}),
            **{name: value for name, value in table.items() if name not in (*EPISODES, RESTARTS)},
        }
        self.closed, self.last_iteration = now, self.iteration
        self.sums[:], self.counts[:] = 0, 0
        self.history.append(row)
        self.on_row(row)

    def _speed(self, now: float) -> int | None:
        """Steps a second since the last row; none while compiling is part of it."""
        steps = (self.iteration - self.last_iteration) * self.steps_per_iteration
        return round(steps / (now - self.closed)) if self.compiled and steps and now > self.closed else None


EVERY_ONE = 1024
"""So many iterations have a row each. Then every second one has, to twice as many; every fourth, to four times; ..."""


def stretch(iteration: int) -> int:
    """The number of iterations after which the row ends that iteration `iteration`, counted from 0, belongs to."""
    length = 1 << max(0, iteration // EVERY_ONE).bit_length()
    return (iteration // length + 1) * length


def column(history: Sequence[Row], name: str) -> list[Any]:
    """One metric over time, without the rows that lack it."""
    return [row[name] for row in history if row.get(name) is not None]
