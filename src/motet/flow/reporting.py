"""Under which names metrics are shown.

A metric is called as its author called it. Where two results have the same word, and where it is one that every row
has by itself, the name of the result stands in front: `targets/loss` and `gradient/loss`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import jax

from motet.errors import BadAlgorithm
from motet.flow.graph import Report, Var

TAKEN = ("iteration", "steps", "seconds", "steps_per_second", "episodes", "return", "length", "restarts")
"""What every row says by itself."""

Name = tuple[Report, str]
"""A metric: what reports it, and its word."""


def named(algorithm: str, variables: Mapping[str, Var], reports: Sequence[Report]) -> tuple[Report, ...]:
    """The reports with a name for each leaf, all of them different."""
    metrics = [(report, word) for report in reports for word in _words(variables[report.var], report)]
    shown = [word for _, word in metrics]
    for front in (lambda report: report.node, lambda report: report.var.split("/")[0]):
        shown = _told_apart(metrics, shown, front)
    clash = next((name for name, count in Counter(shown).items() if count > 1), None)
    if clash is not None:
        raise BadAlgorithm(
            f"{algorithm}.loop reports {clash!r} twice: call flow.report once for each result, and give metrics "
            "different names."
        )
    names = iter(shown)
    return tuple(
        replace(report, names=tuple(next(names) for _ in _words(variables[report.var], report))) for report in reports
    )


def _told_apart(metrics: Sequence[Name], shown: Sequence[str], front: Callable[[Report], str]) -> list[str]:
    """The names, with something in front of those that would be taken for others."""
    count = Counter([*shown, *TAKEN])
    return [
        f"{front(report)}/{word}" if count[name] > 1 and report.how == "mean" else name
        for (report, word), name in zip(metrics, shown, strict=True)
    ]


def _words(var: Var, report: Report) -> list[str]:
    if report.how == "sum":
        return [report.var]
    paths = jax.tree_util.tree_flatten_with_path(var.unpack(var.avals))[0]
    return ["/".join(str(getattr(key, "key", key)) for key in path) for path, _ in paths]
