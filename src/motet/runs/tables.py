"""The same rows for other programs: `metrics.csv` for spreadsheets, and events for TensorBoard.

Neither ends a run: if a file cannot be written, it ends early and the result says so.
"""

from __future__ import annotations

import csv
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motet.runs.callback import Beginning, Callback
from motet.runs.charts import curves, present
from motet.runs.metrics import Row

FLUSHED = 10.0
"""Seconds after which whoever looks on in TensorBoard sees what is new."""


class FileWriter(Callback):
    """A file that is written while a run goes on."""

    def __init__(self, path: Path):
        self.path = path
        self._open: Any = None
        self._trouble: list[str] = []
        self._lock = threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._trouble)

    def attempt(self, what: Callable[[], None]) -> None:
        """Do it, or if the disk does not let us, say so and write no more."""
        with self._lock:
            try:
                what()
            except OSError as error:
                self._trouble.append(f"{self.path} ends early: {error.strerror}")
                self.close()

    def close(self) -> None:
        opened, self._open = self._open, None
        try:
            if opened is not None:
                opened.close()
        except OSError as error:  # what was not written yet
            if not self._trouble:
                self._trouble.append(f"{self.path} ends early: {error.strerror}")

    def end(self, outcome: Any) -> None:
        with self._lock:
            self.close()


class Table(FileWriter):
    """`metrics.csv`: a line of names, then the rows of `metrics.jsonl`; what is missing is empty."""

    def __init__(self, folder: Path):
        super().__init__(folder / "metrics.csv")
        self._rows: Any = None

    def begin(self, run: Beginning) -> None:
        self.attempt(self._begin)

    def _begin(self) -> None:
        """A run that goes on has rows already, those of its `metrics.jsonl`."""
        self._open = self.path.open("w", buffering=1, newline="")
        earlier = self.path.with_suffix(".jsonl")
        for line in earlier.read_text().splitlines() if earlier.is_file() else ():
            self._write(json.loads(line))

    def row(self, row: Row) -> None:
        self.attempt(lambda: self._write(row))

    def _write(self, row: Row) -> None:
        if self._open is None:
            return
        if self._rows is None:
            self._rows = csv.DictWriter(self._open, list(row), restval="", extrasaction="ignore", lineterminator="\n")
            self._rows.writeheader()
        self._rows.writerow(row)


class Events(FileWriter):
    """TensorBoard's events, over environment steps. Each row is one record, which no thread holds back."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self._steps, self._flushed = 0, 0.0
        self._event: Any = None
        """What an event is, known once it is wanted: its library takes a while to import."""

    def begin(self, run: Beginning) -> None:
        self.attempt(lambda: self._begin(run.first_step))

    def _begin(self, first_step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[attr-defined]

        self._event = Event
        self._open = EventsWriter(str(self.path / "events"))
        self._steps = first_step
        if first_step:  # what an interrupted run wrote beyond where it goes on is dropped by whoever reads
            self._open.write_event(Event(step=first_step + 1, session_log=SessionLog(status=SessionLog.START)))
        self._open.flush()

    def row(self, row: Row) -> None:
        self._steps = int(row["steps"] or 0)
        self._put(self._steps, curves(row))

    def usage(self, usage: Mapping[str, float]) -> None:
        self._put(self._steps, {f"perf/{name}": value for name, value in usage.items()})

    def evaluation(self, evaluation: Any) -> None:
        self._put(evaluation.steps, present(evaluation.curves()))

    def _put(self, step: int, points: Mapping[str, float]) -> None:
        if points:
            self.attempt(lambda: self._write(step, points))

    def _write(self, step: int, points: Mapping[str, float]) -> None:
        if self._open is None:
            return
        now = time.time()
        event = self._event(wall_time=now, step=step)
        for name, value in points.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._open.write_event(event)
        if now - self._flushed > FLUSHED:
            self._flushed = now
            self._open.flush()
