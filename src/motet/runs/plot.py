"""Curves of runs as a picture, by matplotlib: no screen is needed, and nothing global is changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from motet.errors import BadOption
from motet.runs.curves import AXES, RunGroup, check_metrics, grouped, read_log, usual_metrics
from motet.runs.spread import bootstrap, iqm

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
"""Okabe and Ito's: colour-blind people can tell them apart."""
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
"""Once the colours are used up, or the print is grey."""
INK, FAINT = "#1e293b", "#cbd5e1"
POINTS = 200
"""Of the curve of several runs."""
FEW = 30
"""Points of a curve that are drawn as such: evaluations, say."""
FORMATS = (".png", ".svg", ".pdf")


def plot(folders: Sequence[Path], output: Path, metrics: Sequence[str] = (), over: Sequence[str] = ()) -> Path:
    """Draw the metrics of runs, one below the other, over steps and over seconds side by side: by default the return,
    and where all runs were evaluated while they trained, that of evaluations.

    Runs that differ by their seeds alone are one curve: the interquartile mean of them, with a band in which it lies
    with 95%, by a bootstrap over the seeds.
    """
    if not folders:
        raise BadOption("Name at least one run's folder.")
    if output.suffix.lower() not in FORMATS:
        raise BadOption(f"A plot is a {', '.join(FORMATS)} file, but is to be written to {output}.")
    runs = [read_log(folder) for folder in dict.fromkeys(folders)]
    metrics = metrics or usual_metrics(runs)
    check_metrics(runs, metrics)
    figure = _figure(grouped(runs), metrics, over or tuple(AXES))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, dpi=160)
    except OSError as error:
        raise BadOption(f"{output} cannot be written: {error.strerror}.") from None
    return output


def _figure(groups: Sequence[RunGroup], metrics: Sequence[str], over: Sequence[str]) -> Any:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.family": "sans-serif", "font.size": 10, "text.color": INK, "axes.labelcolor": INK}):
        head = 0.28 * -(-len(groups) // 2) + 0.12
        height = 2.9 * len(metrics) + head
        figure = Figure(figsize=(4.6 * len(over) + 0.2, height), layout="constrained")
        axes = figure.subplots(len(metrics), len(over), squeeze=False, sharex="col", sharey="row")
        for row, metric in enumerate(metrics):
            for column, axis in enumerate(over):
                _panel(axes[row][column], groups, metric, axis, last=row == len(metrics) - 1)
            axes[row][0].set_ylabel(metric)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=2 if len(groups) > 1 else 1, frameon=False, fontsize=9.5
        )
        figure.canvas.draw()
    return figure


def _panel(axes: Any, groups: Sequence[RunGroup], metric: str, over: str, last: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    for place, group in enumerate(groups):
        colour, dash = COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]
        _curve(axes, group, metric, over, colour, dash)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    if last:
        axes.set_xlabel(AXES[over])


def _curve(axes: Any, group: RunGroup, metric: str, over: str, colour: str, dash: Any) -> None:
    curves = [run.curve(metric, over) for run in group.runs]
    style = {"color": colour, "linestyle": dash, "solid_capstyle": "round"}
    if len(curves) == 1:
        axes.plot(*curves[0].T, linewidth=1.8, label=group.label, **style)
        if len(curves[0]) <= FEW:
            axes.plot(*curves[0].T, "o", color=colour, markersize=4)
        return
    grid, values = together(curves)
    low, high = bootstrap([values])
    for curve in curves:
        axes.plot(*curve.T, color=colour, linewidth=0.6, alpha=0.3)
    axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    label = f"{group.label}  (IQM of {len(curves)} runs, 95%)"
    axes.plot(grid, iqm(values), linewidth=2.0, label=label, **style)


def together(curves: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Curves at the same places, as far as all of them reach: (places [points], values [runs, points])."""
    first, last = max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves)
    grid = np.linspace(first, max(first, last), POINTS)
    return grid, np.stack([np.interp(grid, *curve.T) for curve in curves])


def short_number(value: float) -> str:
    """500k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
