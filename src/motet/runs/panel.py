"""What is known of a run as lines of a terminal: a pure function of `Progress` and of the room there is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from motet.runs.diverging import diverging
from motet.runs.glyphs import bar, duration, moment, short, size, sparkline
from motet.runs.progress import FragmentActivity, LinkUsage, Progress

WIDEST = 117
NARROW = 72
"""Below so many letters, rows say less."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS = 8
"""Of the spinner, in a second."""


@dataclass(frozen=True)
class Line:
    """A row, and how much it matters: where there is no room, the highest numbers go first."""

    text: Text
    rank: int = 0


def panel(progress: Progress, width: int, height: int) -> Panel:
    """At most `width` by `height` letters. How many rows there are follows from the plan and the options of a run, not
    from what has happened: nothing jumps."""
    inner = max(20, min(width, WIDEST) - 4)
    lines = fitting(list(_lines(progress, inner)), max(1, height - 2))
    title = Text(progress.title, "bold", no_wrap=True, overflow="ellipsis")
    return Panel(Group(*lines), title=title, title_align="left", width=inner + 4, border_style="dim")


def fitting(lines: list[Line], most: int) -> list[Text]:
    """So many of them as fit, in their order, those that matter least left out."""
    while len(lines) > most:
        least = max(range(len(lines)), key=lambda place: (lines[place].rank, place))
        lines = lines[:least] + lines[least + 1 :]
    return [line.text for line in lines]


def _lines(progress: Progress, width: int) -> Iterable[Line]:
    yield Line(_steps(progress, width))
    yield Line(_speed(progress, width))
    yield Line(_returns(progress, width))
    if progress.evaluates:
        yield Line(_evaluations(progress, width), 1)
    yield Line(_losses(progress, width), 4)
    if progress.waits:
        yield Line(Text(""), 9)
        label = max(map(len, (*progress.fragments, *(link for link, _, _ in progress.links))))
        for part in progress.parts:
            yield Line(_part(part, width, label), 2)
        for flow in progress.flows:
            yield Line(_flow(flow, width, label), 5)
        yield Line(Text(""), 9)
    yield Line(_upkeep(progress, width), 3)


def _steps(progress: Progress, width: int) -> Text:
    done, total = progress.steps, max(progress.total, 1)
    words = f"{done:,}/{progress.total:,} steps {100 * done // total:3}%"
    room = max(8, width - len(words) - 2)
    filled = round(room * min(1.0, done / total))
    made = Text("━" * filled, "green" if done >= total else "cyan").append("─" * (room - filled), "dim")
    return _row(made, Text(words), width)


def _speed(progress: Progress, width: int) -> Text:
    """How fast it goes; where nothing comes to its end, why."""
    times = Text(f"elapsed {duration(progress.elapsed)}")
    if progress.left is not None:
        times.append(f"  left {duration(progress.left)}")
    if heartbeat := progress.heartbeat:
        turn = SPINNER[int(progress.now * TURNS) % len(SPINNER)]
        return _row(Text(f"{turn} {heartbeat}", "yellow"), times, width)
    return _row(Text(f"{progress.speed:,.0f} steps/s" if progress.speed else "", "bold cyan"), times, width)


def _returns(progress: Progress, width: int) -> Text:
    last = progress.last
    if "return" not in last:
        return Text("no episode has ended yet", "dim")
    words = Text.assemble("return ", (f"{last['return']:.1f}", "bold green"), "  ")
    about = f"{progress.episodes:,} episodes"
    if width >= NARROW and last.get("length") is not None:
        about += f", {last['length']:,.0f} steps each"
    room = max(8, min(48, width - len(words) - len(about) - 2))
    return _row(words.append(sparkline(progress.curve, room), "green"), Text(about, "dim"), width)


def _evaluations(progress: Progress, width: int) -> Text:
    if not progress.evaluations:
        return Text("eval   not yet", "dim")
    words = Text.assemble("eval   ", (f"{progress.evaluations[-1][1]:.1f}", "bold magenta"))
    if width >= NARROW:
        words.append(f" ± {progress.spread:.1f}", "dim")
    best = f"best {progress.best[1]:.1f} at {short(progress.best[0])}" if progress.best else ""
    room = max(4, min(24, width - len(words) - len(best) - 4))
    words.append("  ").append(sparkline(progress.evaluations, room), "magenta")
    return _row(words, Text(best, "dim"), width)


def _losses(progress: Progress, width: int) -> Text:
    words = Text(no_wrap=True)
    if found := diverging(progress.last):
        words.append(f"diverging: {', '.join(found)}  ", "bold red")
    for name, value in progress.losses.items():
        words.append(f"{name} ", "dim").append(f"{value:.3g}  ")
    words.rstrip()
    words.truncate(width, overflow="ellipsis")
    return words


def _part(part: FragmentActivity, width: int, label: int) -> Text:
    """`actors   ██████▌···  computes 62%  waits for learner 38%        12.3 ms an iteration`."""
    words = Text(f"{part.name:<{label}}  ")
    if part.computing is None:
        return words.append("·" * _bar_width(width), "dim")
    room = _bar_width(width)
    drawn = bar(part.computing, room)
    full = len(drawn.rstrip())
    words.append(drawn[:full], "blue").append("·" * (room - full), "dim")
    words.append(f" {part.computing:4.0%}").append("" if width < NARROW else " computing", "dim")
    waits = [f"{whom} {share:.0%}" for whom, share in part.waiting.items() if share >= 0.01]
    if waits:
        words.append("  waits for " if width >= NARROW else "  ", "dim").append(", ".join(waits))
    each = moment(part.iteration_seconds) if part.iteration_seconds else ""
    return _row(words, Text(f"{each} an iteration" if each and width >= NARROW else each, "dim"), width)


def _bar_width(width: int) -> int:
    return 20 if width >= NARROW else 8


def _flow(flow: LinkUsage, width: int, label: int) -> Text:
    """`policy   learner → actors    1.2 MB/s   depth 1   lag 1`."""
    words = Text(f"{flow.link:<{label}}  ")
    if width >= NARROW:
        words.append(f"{flow.source} → {flow.target}", "dim")
    told = Text()
    if flow.bytes_per_second is not None:
        told.append(f"{size(flow.bytes_per_second)}/s")
    if flow.depth is not None:
        told.append("   depth ", "dim").append(f"{flow.depth:.0f}")
    if flow.lag is not None:
        told.append("   lag ", "dim").append(f"{flow.lag:.2g}")
    return _row(words, told, width)


def _upkeep(progress: Progress, width: int) -> Text:
    """What is saved, how often workers died, and where nothing waits, how long an iteration takes."""
    words = Text(no_wrap=True)
    if progress.saved is not None:
        words.append("saved ", "dim").append(f"{duration(progress.now - progress.saved)} ago")
    elif progress.saves:
        words.append("not saved yet", "dim")
    if "restarts" in progress.last:
        words.append("   restarts ", "dim").append(str(progress.restarts), "bold red" if progress.restarts else "")
    if compiled := progress.usage.get("compile_seconds"):
        words.append("   compiled ", "dim").append(moment(compiled))
    alone = progress.parts[0].iteration_seconds if len(progress.fragments) == 1 else None
    each = Text(f"{moment(alone)} an iteration" if alone and not progress.waits else "", "dim")
    return _row(words, each, width)


def _row(left: Text, right: Text, width: int) -> Text:
    """Two texts at both ends of a row. The right one stays whole, if that leaves room for the left."""
    room = width - len(right) - (1 if len(right) else 0)
    if room < min(len(left), 8):
        left.truncate(width, overflow="ellipsis")
        return left
    left.truncate(room, overflow="ellipsis")
    made = left.append(" " * (width - len(left) - len(right))).append_text(right)
    made.no_wrap = True
    return made
