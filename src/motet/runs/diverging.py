"""Metrics that are on their way to infinity: said while there is still something to save."""

from __future__ import annotations

from motet.runs.callback import Callback
from motet.runs.metrics import Row

TOO_LARGE = 1e15
"""Beyond this a metric is called diverging: not far from here, squares are no longer finite in single precision."""
NOT_LOSSES = frozenset(
    {"iteration", "steps", "seconds", "steps_per_second", "episodes", "return", "length", "restarts"}
)
"""Columns that say how a run goes, and not what is computed in it."""


def diverging(row: Row) -> dict[str, float]:
    """The metrics of a row that are too large to be right."""
    found = {name: float(value) for name, value in row.items() if name not in NOT_LOSSES and value is not None}
    return {name: value for name, value in found.items() if abs(value) > TOO_LARGE}


class Divergence(Callback):
    """Warns of each metric that diverges, once."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.seen.values())

    def row(self, row: Row) -> None:
        for name, value in diverging(row).items():
            self.seen.setdefault(
                name,
                f"diverging: the metric {name!r} was {value:.3g} at iteration {row['iteration']}. "
                "Try a lower learning rate or a smaller gradient norm.",
            )
