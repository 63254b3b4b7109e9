"""A run on the screen: a live panel on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from motet.runs.metrics import Row

if TYPE_CHECKING:
    from motet.flow.graph import Graph
    from motet.plan.plan import Plan
    from motet.runs.display import Display

BARS = "▁▂▃▄▅▆▇█"
MOST_POINTS = 512
"""A curve twice as long is thinned to so many points, so that drawing it takes no longer in a long run."""
Point = tuple[float, float]
"""Steps, return."""
NOT_LOSSES = frozenset(
    {"iteration", "steps", "seconds", "steps_per_second", "episodes", "return", "length", "restarts"}
)


def seen_by_a_person(console: Console | None = None) -> bool:
    """Whether what is written to standard output appears on a terminal or in a notebook."""
    console = console or Console()
    return console.is_terminal or console.is_jupyter


def live_display(console: Console | None = None) -> Display:
    """What shows a run best where `console` writes: by default, where standard output goes."""
    console = console or Console(highlight=False)
    drawn = console.is_terminal and not (console.is_dumb_terminal or console.is_jupyter)
    return Screen(console) if drawn else Lines(console)


@dataclass
class Progress:
    """What is known of a run so far. Whoever uses it holds the lock."""

    clock: Callable[[], float] = time.monotonic
    title: str = ""
    total: int = 0
    began: float = 0.0
    ended: float | None = None
    first: Row | None = None
    """The first row after something was compiled: speed is measured from there."""
    last: Row = field(default_factory=dict)
    episodes: int = 0
    curve: list[Point] = field(default_factory=list)
    doing: dict[str, str] = field(default_factory=dict)
    """Fragment -> what it says it does; a run of one fragment has no name for it."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, graph: Graph, plan: Plan, total_steps: int) -> None:
        with self.lock:
            self.title = f"{graph.algorithm} on {graph.environment}, plan {plan.name}"
            self.total, self.began = total_steps, self.clock()

    def status(self, text: str) -> None:
        who, colon, what = text.partition(": ")
        with self.lock:
            self.doing[who if colon else ""] = what if colon else text
            if self.compiling:
                self.first = None

    def row(self, row: Row) -> None:
        with self.lock:
            self.first = self.first or row
            self.last = {**self.last, **{name: value for name, value in row.items() if value is not None}}
            self.episodes += int(row.get("episodes") or 0)
            score = row.get("return")
            if score is not None:
                self.curve.append((float(row.get("steps") or 0), float(score)))
            if len(self.curve) > 2 * MOST_POINTS:
                self.curve = resample(self.curve, MOST_POINTS)

    def end(self) -> None:
        with self.lock:
            self.ended = self.clock()

    @property
    def steps(self) -> int:
        return int(self.last.get("steps") or 0)

    @property
    def elapsed(self) -> float:
        return (self.clock() if self.ended is None else self.ended) - self.began

    @property
    def speed(self) -> float | None:
        """Steps a second since something was compiled last."""
        return speed(self.first, self.last)

    @property
    def left(self) -> float | None:
        return max(0, self.total - self.steps) / self.speed if self.speed else None

    @property
    def losses(self) -> dict[str, float]:
        names = sorted(self.last.keys() - NOT_LOSSES, key=lambda name: (name != "loss", "loss" not in name, name))
        return {name: float(self.last[name] or 0) for name in names}

    @property
    def compiling(self) -> list[str]:
        """What is being compiled now, each thing once: the replicas of a fragment compile the same."""
        found = []
        for who, what in self.doing.items():
            if what.startswith("compiling"):
                fragment = who.partition("[")[0]
                found.append(what.removeprefix("compiling").strip() + (f" for {fragment}" if fragment else ""))
        return list(dict.fromkeys(found))


def speed(first: Row | None, last: Row) -> float | None:
    """Steps a second between two rows; from one row alone, what it says of itself."""
    if first and (seconds := (last.get("seconds") or 0) - (first.get("seconds") or 0)) > 0:
        return ((last.get("steps") or 0) - (first.get("steps") or 0)) / seconds
    return last.get("steps_per_second")


class Lines:
    """One line every few seconds, for log files and pipes."""

    def __init__(self, console: Console, interval: float = 5.0, clock: Callable[[], float] = time.monotonic):
        self.console, self.interval = console, interval
        self.progress = Progress(clock)
        self.printed: Row | None = None
        self.next = -float("inf")

    def begin(self, graph: Graph, plan: Plan, total_steps: int) -> None:
        self.progress.begin(graph, plan, total_steps)
        self._print(f"{self.progress.title}, {total_steps:,} steps")

    def status(self, text: str) -> None:
        with self.progress.lock:
            quiet = not self.progress.doing  # the first word of a run: it would look stuck without
            self.progress.status(text)
            if quiet and self.progress.compiling:
                self._print("compiling")

    def row(self, row: Row) -> None:
        with self.progress.lock:
            self.progress.row(row)
            # The first row may know no speed yet: the next one says more, and comes soon or is worth the wait.
            if self.progress.clock() >= self.next and self.progress.speed is not None:
                self._line()

    def end(self) -> None:
        with self.progress.lock:
            self.progress.end()
            if self.progress.last and self.progress.last != self.printed:
                self._line()

    def _line(self) -> None:
        self.printed, self.next = self.progress.last, self.progress.clock() + self.interval
        self._print(line(self.progress))

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)


def line(progress: Progress) -> str:
    """`steps 81,920/500,000  195,000 steps/s  return 143.2  loss 0.31  left 2s`."""
    parts = [f"steps {progress.steps:,}/{progress.total:,}"]
    if progress.speed:
        parts.append(f"{progress.speed:,.0f} steps/s")
    if "return" in progress.last:
        parts.append(f"return {progress.last['return']:.1f}")
    parts += [f"{name} {value:.3g}" for name, value in list(progress.losses.items())[:1]]
    if progress.left is not None and progress.ended is None:
        parts.append(f"left {duration(progress.left)}")
    return "  ".join(parts)


class Screen:
    """A panel that is drawn anew a few times a second. Its height is fixed, so that nothing jumps."""

    def __init__(self, console: Console):
        self.console = console
        self.progress = Progress()
        self.spinner = Spinner("dots")
        self.live = Live(console=console, get_renderable=self.render, refresh_per_second=8)

    def begin(self, graph: Graph, plan: Plan, total_steps: int) -> None:
        self.progress.begin(graph, plan, total_steps)
        self.live.start()

    def status(self, text: str) -> None:
        self.progress.status(text)

    def row(self, row: Row) -> None:
        self.progress.row(row)

    def end(self) -> None:
        """Leave the last picture on the screen; a second call does nothing."""
        self.progress.end()
        self.live.stop()

    def render(self) -> RenderableType:
        with self.progress.lock:
            # Three columns stay free: a terminal that shows ^C there need not wrap, which would shift the picture.
            width = max(20, min(self.console.width - 3, 100) - 4)
            parts = [self._steps(width), self._speed(width), self._return(width), self._losses(width)]
            title = Text(self.progress.title, "bold")
            return Panel(Group(*parts), title=title, title_align="left", width=width + 4, border_style="dim")

    def _steps(self, width: int) -> RenderableType:
        done, total = self.progress.steps, self.progress.total
        words = Text(f"{done:,}/{total:,} steps {100 * done // max(total, 1):3}%")
        bar = ProgressBar(total=max(total, 1), completed=done, width=max(8, width - len(words) - 2))
        return _row(bar, words)

    def _speed(self, width: int) -> RenderableType:
        """How fast it goes; while something is compiled, that."""
        progress = self.progress
        times = Text(f"elapsed {duration(progress.elapsed)}")
        if progress.left is not None and progress.ended is None:
            times.append(f"  left {duration(progress.left)}")
        if progress.compiling and progress.ended is None:
            what = Text(f"compiling {', '.join(progress.compiling)}", "yellow")
            what.truncate(max(8, width - len(times) - 4), overflow="ellipsis")
            self.spinner.update(text=what, style="yellow")
            return _row(self.spinner, times)
        return _row(Text(f"{progress.speed:,.0f} steps/s" if progress.speed else "", "bold cyan"), times)

    def _return(self, width: int) -> RenderableType:
        last, curve = self.progress.last, self.progress.curve
        if "return" not in last:
            return Text("no episode has ended yet", "dim")
        words = Text.assemble("return ", (f"{last['return']:.1f}", "bold green"), "  ")
        episodes = Text(f"{self.progress.episodes:,} episodes")
        words.append(sparkline(curve, max(8, min(40, width - len(words) - len(episodes) - 2))), "green")
        return _row(words, episodes)

    def _losses(self, width: int) -> RenderableType:
        words = Text(no_wrap=True, overflow="ellipsis")
        for name, value in self.progress.losses.items():
            words.append(f"{name} ", "dim").append(f"{value:.3g}  ")
        words.rstrip()
        return words


def _row(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def sparkline(curve: Sequence[Point], width: int) -> str:
    """A curve as a row of blocks, from its lowest value to its highest."""
    values = [value for _, value in resample(curve, width)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def resample(curve: Sequence[Point], most: int) -> list[Point]:
    """At most that many points, which lie evenly: the means of equal stretches of steps that have any."""
    if len(curve) <= most:
        return list(curve)
    first, last = curve[0][0], curve[-1][0]
    stretches: dict[int, list[Point]] = {}
    for point in curve:
        stretches.setdefault(min(most - 1, int(most * (point[0] - first) / ((last - first) or 1))), []).append(point)
    return [(_mean([x for x, _ in each]), _mean([y for _, y in each])) for each in stretches.values()]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def duration(seconds: float) -> str:
    """3s, 2m05s, 1h02m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"
