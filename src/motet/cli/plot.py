"""`motet plot`."""

from __future__ import annotations

from pathlib import Path

ABOUT = (
    "Draw the curves of runs. Those that differ by their seeds alone are one curve: their interquartile mean, with a "
    "band. Example: motet plot runs/* --metric return entropy"
)


def plot(args: list[str]) -> int:
    """Draw the curves of runs."""
    from motet.cli.options import PlotOptions
    from motet.cli.parsing import parse

    options = parse("plot", args, ABOUT, plot=PlotOptions).plot
    from motet.runs.finding import resolve_run
    from motet.runs.plot import plot

    runs = [resolve_run(run) for run in options.runs]
    name = (*options.metric, "return")[0].replace("/", "-")
    usual = runs[0] / "plots" / f"{name}.png" if len(runs) == 1 else Path("plot.png")
    print(plot(runs, options.output or usual, options.metric, options.over))
    return 0
