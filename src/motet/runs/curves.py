"""The curves of runs, from their folders: what was measured, over steps and seconds; which runs belong together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.errors import BadOption, UnknownName
from motet.runs.evaluations import read_evaluations
from motet.runs.reading import Damaged, read_json

METRICS = "metrics.jsonl"
AXES = {"steps": "environment steps", "seconds": "seconds after the first iteration"}
NOT_MEASURED = ("iteration", *AXES)
MOST_POINTS = 400
"""Of a curve: more than a picture has room for."""


@dataclass(frozen=True)
class Logged:
    """What a run's folder tells of how it went."""

    folder: Path
    config: Mapping[str, Any]
    plan: str
    rows: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Mapping[str, Any], ...] = ()
    """What evaluations during training gave: columns `eval/...`."""

    @property
    def metrics(self) -> list[str]:
        """The names of what was measured at least once."""
        found = [name for row in self.rows for name in row if _number(row[name]) is not None]
        found += [name for row in self.evaluations for name in row if _is_evaluation(name)]
        return list(dict.fromkeys(found))

    def curve(self, metric: str, over: str) -> np.ndarray:
        """[points, 2]: where, and what was measured there. Means, where there are more points than can be seen."""
        if _is_evaluation(metric):
            points = self._pairs(self.evaluations, "steps", metric)
            if over == "seconds" and len(points):  # an evaluation is of when the policy was that was evaluated
                points[:, 0] = np.interp(points[:, 0], *self._pairs(self.rows, "steps", "seconds").T)
        else:
            points = self._pairs(self.rows, over, metric)
        if over == "seconds" and self.rows:  # what came before was compiling, which is not learning
            points[:, 0] -= _number(self.rows[0].get(over)) or 0.0
        return thinned(points)

    def _pairs(self, rows: Sequence[Mapping[str, Any]], over: str, metric: str) -> np.ndarray:
        pairs = ((_number(row.get(over)), _number(row.get(metric))) for row in rows)
        return np.array([pair for pair in pairs if None not in pair], float).reshape(-1, 2)

    def configuration(self) -> dict[str, Any]:
        """All that was chosen, but for the seed: runs that agree in it belong together."""
        options = self.config.get("options")
        return {
            "algorithm": self.config.get("algorithm"),
            "environment": self.config.get("environment"),
            **{f"env {name}": value for name, value in dict(self.config.get("environment_options") or {}).items()},
            "plan": self.plan,
            **(options if isinstance(options, dict) else {}),
        }


def read_log(folder: Path) -> Logged:
    """What a run's folder tells. The last row of a run that goes on may be half written."""
    config_file, metrics_file = folder / "config.json", folder / METRICS
    if not folder.is_dir():
        raise BadOption(f"There is no folder {folder}; give a run's folder, as `motet train` makes them.")
    if not config_file.is_file():
        raise BadOption(f"{folder} is no run's folder: it holds no config.json. `motet train` makes such folders.")
    config = read_json(config_file)
    if not isinstance(config, dict):
        raise Damaged(f"{config_file} is damaged: it should hold an object.")
    lines = metrics_file.read_text(errors="replace").splitlines() if metrics_file.is_file() else []
    rows, evaluations = tuple(_rows(metrics_file, lines)), tuple(read_evaluations(folder))
    return Logged(folder, config, _plan_name(folder), rows, evaluations if rows else ())


def _rows(file: Path, lines: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) - 1:
                return
            raise Damaged(f"{file} is damaged: line {number + 1} is no row of metrics.") from None
        if not isinstance(row, dict):
            raise Damaged(f"{file} is damaged: line {number + 1} is no row of metrics.")
        yield row


def _plan_name(folder: Path) -> str:
    file = folder / "plan.json"
    plan = read_json(file) if file.is_file() else {}
    return str(plan.get("name", "")) if isinstance(plan, dict) else ""


def _is_evaluation(metric: str) -> bool:
    return metric.startswith("eval/")


def usual_metrics(runs: Sequence[Logged]) -> tuple[str, ...]:
    """What to draw if nobody says: the return while training, and that of evaluations if all have some."""
    evaluated = all("eval/return" in run.metrics for run in runs)
    return ("return", "eval/return") if evaluated else ("return",)


def _number(value: Any) -> float | None:
    finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if finite else None


def thinned(points: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """At most so many points: the means of equal numbers of neighbours."""
    if len(points) <= most:
        return points
    return np.stack([part.mean(0) for part in np.array_split(points, most)])


@dataclass(frozen=True)
class RunGroup:
    """Runs of one configuration, which differ by their seeds."""

    label: str
    runs: tuple[Logged, ...]


def grouped(runs: Sequence[Logged]) -> list[RunGroup]:
    """The runs by their configurations; a group's name says what sets it apart."""
    found: dict[str, list[Logged]] = {}
    for run in runs:
        found.setdefault(json.dumps(run.configuration(), sort_keys=True, default=str), []).append(run)
    groups = list(found.values())
    chosen = [group[0].configuration() for group in groups]
    return [RunGroup(_label(mine, chosen), tuple(group)) for mine, group in zip(chosen, groups, strict=True)]


def _label(mine: Mapping[str, Any], all_of_them: Sequence[Mapping[str, Any]]) -> str:
    differing = [name for name in mine if len({json.dumps(each.get(name), default=str) for each in all_of_them}) > 1]
    head = [str(mine["algorithm"]), str(mine["environment"])]
    if "plan" in differing:
        head.append(str(mine["plan"]))
    rest = [name for name in differing if name not in ("algorithm", "environment", "plan")]
    same = [each for each in all_of_them if (each["algorithm"], each["environment"]) == tuple(head[:2])]
    if len(same) > 1:  # between two algorithms, all options differ
        head += [f"{name}={_short(mine[name])}" for name in rest if any(each.get(name) != mine[name] for each in same)]
    return ", ".join(head)


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def check_metrics(runs: Sequence[Logged], metrics: Sequence[str]) -> None:
    """Every metric must have been measured, in every run."""
    for run in runs:
        known = [name for name in run.metrics if name not in NOT_MEASURED]
        if not known:
            why = "its rows hold no numbers" if run.rows else f"it holds no rows in {METRICS}"
            raise BadOption(f"{run.folder} has nothing to show: {why}. A run has a curve after its first iterations.")
        for metric in metrics:
            if metric not in known:
                raise UnknownName(f"metric in {run.folder}", metric, known)
