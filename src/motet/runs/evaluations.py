"""Reading what a run's folder says of evaluations during training."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from motet.runs.finding import EVALUATIONS


def read_evaluations(run: Path, until: float = math.inf) -> list[dict[str, Any]]:
    """What a run's folder says of evaluations, of its first `until` iterations; what is no such row, as the last one of
    a run that was killed, is left out."""
    rows = []
    with contextlib.suppress(FileNotFoundError), (run / EVALUATIONS).open(errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("iteration"), int) and row["iteration"] <= until:
                    rows.append(row)
    return rows
