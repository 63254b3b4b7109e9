"""A run on the screen: a live panel on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.live import Live

from motet.runs.callback import Beginning, Callback
from motet.runs.diverging import diverging
from motet.runs.glyphs import duration
from motet.runs.metrics import Row
from motet.runs.panel import panel
from motet.runs.progress import Progress

REFRESHED = 2
"""How often a second the panel is drawn at most, by a thread of its own."""
SHARE = 0.01
"""The part of a core that drawing may take: training has better use for it."""
SILENCE = 10.0
"""Seconds without a line after which one says what the run does; the next after twice as many."""
UNREAD = "Nobody reads any more how the run goes; it goes on, and is saved as it would be."


class Plain(Console):
    """A console that raises when whoever read has left, instead of ending the process."""

    def on_broken_pipe(self) -> None:
        raise


def seen_by_a_person(console: Console | None = None) -> bool:
    """Whether what is written to standard output appears on a terminal or in a notebook."""
    console = console or Console()
    return console.is_terminal or console.is_jupyter


def live_display(console: Console | None = None) -> Callback:
    """What shows a run best where `console` writes: by default, where standard output goes."""
    console = console or Plain(highlight=False)
    drawn = console.is_terminal and not (console.is_dumb_terminal or console.is_jupyter)
    return Screen(console) if drawn else Lines(console)


class Lines(Callback):
    """One line every few seconds, for log files and pipes."""

    def __init__(self, console: Console, interval: float = 5.0, clock: Callable[[], float] = time.monotonic):
        self.console, self.interval = console, interval
        self.progress = Progress(clock)
        self.printed: Row | None = None
        self.next = -float("inf")
        self.spoke = clock()
        self.patience = SILENCE
        self.over = threading.Event()
        self.unread = False

    def planning(self, text: str) -> None:
        self._print(f"planner: {text}")

    def begin(self, run: Beginning) -> None:
        self.progress.begin(run)
        self._print(f"{self.progress.title}, {run.total_steps:,} steps")
        for note in run.notes:
            self._print(f"note: {note}")
        threading.Thread(target=self._listen, name="motet heartbeat", daemon=True).start()

    def status(self, text: str) -> None:
        with self.progress.lock:
            quiet = not self.progress.doing  # the first word of a run: it would look stuck without
            self.progress.status(text)
            if quiet and self.progress.compiling:
                self._print("compiling")
            elif text.startswith("stopping"):
                self._print(text)

    def row(self, row: Row) -> None:
        with self.progress.lock:
            self.progress.row(row)
            # The first row may know no speed yet: the next one says more, and comes soon or is worth the wait.
            if self.progress.clock() >= self.next and self.progress.speed is not None:
                self._line()

    def usage(self, usage: Mapping[str, float]) -> None:
        self.progress.used(usage)

    def checkpoint(self, iteration: int) -> None:
        self.progress.checkpoint()

    def evaluation(self, evaluation: Any) -> None:
        with self.progress.lock:
            self.progress.evaluated(evaluation)
            best = ", the best so far" if evaluation.is_best else ""
            self._print(f"evaluation after {evaluation.steps:,} steps: {evaluation.scores}{best}")

    def end(self, outcome: Any = None) -> None:
        self.over.set()
        with self.progress.lock:
            self.progress.end()
            if self.progress.last and self.progress.last != self.printed:
                self._line()

    def beat(self) -> None:
        """Say what the run does, if nothing has been said for long."""
        with self.progress.lock:
            silent = self.progress.clock() - self.spoke
            if silent >= self.patience and (words := self.progress.heartbeat):
                self.patience = 2 * silent
                self._print(words)

    def _listen(self) -> None:
        while not self.over.wait(1.0):
            self.beat()

    def _line(self) -> None:
        self.printed, self.next = self.progress.last, self.progress.clock() + self.interval
        self.patience = SILENCE
        self._print(line(self.progress))

    def _print(self, text: str) -> None:
        """A run is worth more than its display: whatever hinders it, the run goes on."""
        self.spoke = self.progress.clock()
        if self.unread:
            return
        try:
            self.console.print(text, soft_wrap=True, markup=False, highlight=False)
        except OSError as error:
            self.unread = True
            with contextlib.suppress(OSError):
                why = UNREAD if isinstance(error, BrokenPipeError) else f"No display: {error.strerror}."
                print(f"motet: {why}", file=sys.stderr)


def line(progress: Progress) -> str:
    """`steps 81,920/500,000  195,000 steps/s  return 143.2  loss 0.31  left 2s`."""
    parts = [f"steps {progress.steps:,}/{progress.total:,}"]
    if progress.speed:
        parts.append(f"{progress.speed:,.0f} steps/s")
    if "return" in progress.last:
        parts.append(f"return {progress.last['return']:.1f}")
    parts += [f"{name} {value:.3g}" for name, value in list(progress.losses.items())[:1]]
    parts += [f"diverging: {', '.join(found)}"] if (found := diverging(progress.last)) else []
    parts += [f"restarts {progress.restarts}"] if progress.restarts else []
    if progress.left is not None:
        parts.append(f"left {duration(progress.left)}")
    return "  ".join(parts)


class Screen(Callback):
    """A panel that is drawn anew a few times a second, whatever the run does meanwhile."""

    def __init__(self, console: Console):
        self.console = console
        self.progress = Progress()
        self.live = Live(console=console, get_renderable=self.render, auto_refresh=False)
        self.over = threading.Event()

    def planning(self, text: str) -> None:
        self.console.print(f"planner: {text}", soft_wrap=True, markup=False, highlight=False)

    def begin(self, run: Beginning) -> None:
        self.progress.begin(run)
        for note in run.notes:
            self.console.print(f"note: {note}", markup=False)
        self.live.start(refresh=True)
        threading.Thread(target=self._draw, name="motet screen", daemon=True).start()

    def status(self, text: str) -> None:
        self.progress.status(text)

    def row(self, row: Row) -> None:
        self.progress.row(row)

    def usage(self, usage: Mapping[str, float]) -> None:
        self.progress.used(usage)

    def evaluation(self, evaluation: Any) -> None:
        self.progress.evaluated(evaluation)

    def checkpoint(self, iteration: int) -> None:
        self.progress.checkpoint()

    def end(self, outcome: Any = None) -> None:
        """Leave the last picture on the screen; a second call does nothing. A terminal that is gone takes no run
        along."""
        self.over.set()
        self.progress.end()
        with contextlib.suppress(OSError):
            self.live.stop()

    def _draw(self) -> None:
        """Draw again and again. A terminal that is gone is drawn on no more."""
        took = 0.0
        with contextlib.suppress(OSError):
            while not self.over.wait(max(1 / REFRESHED, took / SHARE)):
                began = time.thread_time()
                self.live.refresh()
                took = time.thread_time() - began

    def render(self) -> Any:
        # Three columns stay free: a terminal that shows ^C there need not wrap, which would shift the picture. So does
        # a row, for the cursor.
        with self.progress.lock:
            return panel(self.progress, self.console.width - 3, self.console.height - 1)
