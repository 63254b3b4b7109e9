"""Where a run is taken up again: a checkpoint, read and compared with the run that goes on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.engine.adopt import adopt
from motet.engine.assemble import Assembly
from motet.engine.cut import RunCut, load
from motet.engine.packing import BadCut, unpack
from motet.errors import BadOption
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.runs import checkpoints
from motet.runs.finding import look
from motet.runs.folder import read_rows
from motet.runs.metrics import Meter, Row
from motet.runs.reading import Damaged


@dataclass(frozen=True)
class Start:
    """A checkpoint and what belongs to it."""

    path: Path
    cut: RunCut
    told: Mapping[str, Any]
    history: Sequence[Row]
    """The rows of metrics until the cut."""
    scores: Mapping[int, float | None]
    """Of the checkpoints that the run keeps."""
    warnings: tuple[str, ...] = ()
    """What will not be as it would have been."""
    exact: bool = True
    """Whether plan and program are those of the checkpoint, so that the run goes on bit for bit."""

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.path.parents[1]

    @property
    def iteration(self) -> int:
        return self.cut.iteration

    @property
    def resumes(self) -> int:
        """How often the run has been taken up again, this time included."""
        count = self.told.get("resumes")
        return count + 1 if isinstance(count, int) else 1

    def load(self, assembly: Assembly, meter: Meter) -> None:
        """Put a run that has not begun where this one was."""
        try:
            (load if self.exact else adopt)(assembly, self.cut)
        except BadOption as error:
            raise BadOption(f"{self.path} does not fit this run. {error}") from None
        self.tell(meter)

    def tell(self, meter: Meter) -> None:
        """Let whoever measures go on from here."""
        if len(self.cut.watched.get("sums", ())) != len(meter.names):
            raise BadOption(f"{self.path} does not fit this run: it has other metrics.")
        meter.load(self.iteration, self.cut.watched, self.history)


def newest(run: Path, iteration: int | None = None) -> Path:
    """The folder of a run's newest checkpoint, or of that after `iteration` iterations."""
    found = checkpoints.all_of(run)
    if not found:
        raise BadOption(
            f"{run} holds no checkpoint to go on from. One is written every 30 s and at the end, unless `keep` is 0."
        )
    wanted = [path for path in found if iteration is None or int(path.name) == iteration]
    if not wanted:
        there = ", ".join(str(int(path.name)) for path in found)
        raise BadOption(f"{run} holds no checkpoint after iteration {iteration}; there are those after {there}.")
    return wanted[-1]


NEVER_SAVED = "it had not been saved yet, and so it began once more from the beginning"


def was_never_saved(run: Path, config: Mapping[str, Any]) -> bool:
    """Whether a run was to be saved, but was ended before that: it can only begin once more."""
    how = config.get("run")
    keeps = how.get("keep") if isinstance(how, dict) else None
    came_to_an_end = (run / "policy.safetensors").exists()  # and somebody has removed its checkpoints
    lost = not checkpoints.all_of(run) and not came_to_an_end
    return lost and keeps != 0 and look(run).state in ("interrupted", "failed")


def read(run: Path, iteration: int | None = None) -> Start:
    """What a run goes on from."""
    path = newest(run, iteration)
    found = checkpoints.read(path)
    try:
        cut = unpack(found.told["cut"], found.arrays)
    except (BadCut, KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged: {error}.") from None
    history = [row for row in read_rows(run) if int(row["iteration"] or 0) <= cut.iteration]
    scores = {int(each.name): _score(each) for each in checkpoints.all_of(run) if int(each.name) <= cut.iteration}
    return Start(path, cut, found.told, history, scores)


def compare(start: Start, graph: Graph, plan: Plan) -> tuple[bool, tuple[str, ...]]:
    """Whether a run goes on exactly, and what will be different if not."""
    told, warnings = start.told, []
    same_plan = told.get("plan") == plan.to_json()
    longer = told.get("iterations") != graph.iterations
    if not same_plan:
        warnings.append("it goes on under another plan: sums may be added in another order")
    if longer:
        warnings.append(
            f"it has {graph.iterations:,} iterations now and not {told.get('iterations'):,}: schedules that follow "
            "the length of a run are stretched"
        )
    elif same_plan and told.get("fingerprint") != fingerprint(graph):
        warnings.append("the algorithm, the environment or JAX has changed: numbers may be others")
    return same_plan, tuple(warnings)


def _score(path: Path) -> float | None:
    try:
        score = checkpoints.about(path).get("score")
    except (Damaged, BadOption):
        return None
    return float(score) if isinstance(score, int | float) else None
