"""Where runs are: `latest` and other names of them, what a folder says of itself, and in which state its run is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.errors import BadOption
from motet.runs.claim import is_claimed
from motet.runs.reading import Damaged, read_json

CONFIG, STATE, METRICS, EVALUATIONS = "config.json", "state.json", "metrics.jsonl", "evaluations.jsonl"
TRACKER = "tracker.json"
"""Which run of a tracker a run is."""
FORMAT = 1
"""Of what a run's folder holds. A folder of a later one is not read."""
BASE = Path("runs")
"""Where runs lie whose folder nobody named."""
LATEST = "latest"
BEST = "best"
"""The folder in a run's that holds the best policy of its evaluations, and how good it was."""
TAIL = 1 << 16
"""Bytes at the end of a file of metrics in which its last row is looked for."""


def resolve_run(run: str | Path, base: Path | None = None) -> Path:
    """The folder that is meant: a path, the name of a run below runs/, or `latest`, the one that began last."""
    base = BASE if base is None else base
    path = Path(run)
    if str(run) == LATEST and not (path / CONFIG).is_file():
        return latest(base)
    if not path.is_dir() and (base / path / CONFIG).is_file():
        path = base / path
    if not path.exists():
        raise BadOption(f"There is no run's folder {run}. `motet runs` lists the runs below {base}/.")
    if not path.is_dir():
        raise BadOption(f"{run} is a file; name the run's folder.")
    if not (path / CONFIG).is_file():
        raise BadOption(f"{run} is no run's folder: it holds no {CONFIG}. `motet train` makes such folders.")
    return path


def latest(base: Path | None = None) -> Path:
    """The folder of the run that began last."""
    base = BASE if base is None else base
    found = max(folders(base), key=_began, default=None)
    if found is None:
        raise BadOption(f"There is no latest run: {base}/ holds none. `motet train` makes one.")
    return found


def folders(base: Path) -> Iterator[Path]:
    """The folders of runs below `base`."""
    try:
        inside = sorted(base.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadOption(f"{base} cannot be read: {error.strerror}.") from None
    yield from (each for each in inside if (each / CONFIG).is_file())


def _began(folder: Path) -> tuple[float, str]:
    return (folder / CONFIG).stat().st_mtime, folder.name


def read_config(folder: Path) -> dict[str, Any]:
    """What a run's folder says of itself. Nothing in it is believed yet."""
    return read_config_file(folder / CONFIG)


def read_config_file(file: Path) -> dict[str, Any]:
    try:
        config = read_json(file)
    except OSError as error:
        raise BadOption(f"{file} cannot be read: {error.strerror}.") from None
    if not isinstance(config, dict):
        raise Damaged(f"{file} is damaged: it should hold an object.")
    version = config.get("format", FORMAT)
    if version != FORMAT:
        wrote = config.get("versions", {}).get("motet", "?") if isinstance(config.get("versions"), dict) else "?"
        raise BadOption(
            f"{file} has format {version!r}, of motet {wrote}; this motet reads format {FORMAT}. Use the version of "
            "motet that wrote it."
        )
    return config


@dataclass(frozen=True)
class Found:
    """A run as its folder shows it."""

    folder: Path
    state: str
    """running, finished, interrupted or failed; unreadable, where the folder is damaged."""
    config: dict[str, Any]
    row: dict[str, Any]
    """The last row of its metrics."""
    best: float | None = None
    began: float = 0.0
    reason: str = ""
    """Why it failed."""


def look(folder: Path) -> Found:
    """What is known of a run, damaged or not."""
    began = _began(folder)[0]
    try:
        config = read_config(folder)
    except (BadOption, Damaged) as error:
        return Found(folder, "unreadable", {}, {}, None, began, str(error))
    told = _told(folder / STATE)
    state, reason = told.get("state"), str(told.get("error") or "")
    if is_claimed(folder):
        state = "running"
    elif not isinstance(state, str):
        state = "interrupted"  # it had no time to say so
    best = _told(folder / BEST / "evaluation.json").get("return")
    return Found(folder, state, config, last_row(folder), best if _is_number(best) else None, began, reason)


def _told(file: Path) -> dict[str, Any]:
    try:
        told = read_json(file)
    except (OSError, Damaged):
        return {}
    return told if isinstance(told, dict) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def last_row(folder: Path) -> dict[str, Any]:
    """The last whole row of a run's metrics, however long they are; empty, if there is none."""
    try:
        with (folder / METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # a run that was killed may have written half of it
        if isinstance(row, dict):
            return row
    return {}
