"""What curves are called in TensorBoard and in trackers: as CleanRL calls them, so that runs lie side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from motet.runs.metrics import Row

CHARTS = {
    "return": "charts/episodic_return",
    "length": "charts/episodic_length",
    "steps_per_second": "charts/SPS",
    "episodes": "charts/episodes",
    "restarts": "perf/restarts",
}
"""Column -> its curve. All other columns are the algorithm's own."""
AXES = ("iteration", "steps", "seconds")
"""What curves are drawn over; `steps` is their global step."""


def curves(row: Row) -> dict[str, float]:
    """The points of a row, without those that are missing."""
    named = {CHARTS.get(name, f"losses/{name}"): value for name, value in row.items() if name not in AXES}
    return present(named)


def present(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
