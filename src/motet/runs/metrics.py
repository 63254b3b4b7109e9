"""From one row an iteration to a curve that people can read: reduced per interval, bounded in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Row = dict[str, float | int | None]
MOST_ROWS = 4096
"""A longer history is thinned to half: its memory does not grow with the run."""


EPISODES = ("episodes.count", "episodes.return", "episodes.length")
"""The first columns of every row: how many episodes ended in an iteration, and the sums over them."""
RESTARTS = "restarts"
"""How many workers of host environments died and were started anew; shown as the sum over the run."""
WINDOW = 100


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
    """Collects metrics between two intervals and keeps the history of all of them."""

    steps_per_iteration: int
    prefill_steps: int
    on_row: Callable[[Row], None]
    on_status: Callable[[str], None]
    interval: float = 0.5
    history: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.iteration = self.last_iteration = 0
        self.first_row: float | None = None
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
        """Take the metrics of iterations `first`, `first + 1`, ... [n, metrics]."""
        with self.lock:
            self.sums += rows.sum(0)
            self.episodes.add(rows[:, : len(EPISODES)])
            self.counts += (first + len(rows)) // self.every - first // self.every
            self.iteration = first + len(rows)
            if self.first_row is None:  # compiling is over: speed is measured from here
                self.first_row = self.last = time.monotonic()
                self.last_iteration = self.iteration
            if time.monotonic() - self.last >= self.interval:
                self._close()

    def finish(self) -> None:
        with self.lock:
            if self.counts.any():
                self._close()

    def _close(self) -> None:
        now = time.monotonic()
        sums = dict(zip(self.names, self.sums.tolist(), strict=True))
        means = self.sums / np.maximum(self.counts, 1)
        table = {
            name: mean if count else None
            for name, mean, count in zip(self.names, means.tolist(), self.counts, strict=True)
        }
        finished = sums[EPISODES[0]]
        self.restarts += int(sums.get(RESTARTS, 0))
        done = self.iteration - self.last_iteration
        row: Row = {
            "iteration": self.iteration,
            "steps": self.prefill_steps + self.iteration * self.steps_per_iteration,
            "seconds": round(now - self.began, 3),
            "steps_per_second": round(done * self.steps_per_iteration / max(now - self.last, 1e-9)) if done else None,
            "episodes": int(finished),
            "return": self.episodes.mean(1),
            "length": self.episodes.mean(2),
            **({"restarts": self.restarts} if RESTARTS in self.names else {}),
            **{name: value for name, value in table.items() if name not in (*EPISODES, RESTARTS)},
        }
        self.last, self.last_iteration = now, self.iteration
        self.sums[:], self.counts[:] = 0, 0
        self.history.append(row)
        if len(self.history) > MOST_ROWS:
            self.history = self.history[1::2]
        self.on_row(row)


def column(history: Sequence[Row], name: str) -> list[Any]:
    """One metric over time, without the rows that lack it."""
    return [row[name] for row in history if row.get(name) is not None]
