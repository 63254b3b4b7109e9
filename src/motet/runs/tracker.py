"""Curves in trackers, W&B and trackio, by one writer: under the names that TensorBoard's have, over environment steps.

What a tracker calls the run is kept with every checkpoint, so that a run that is taken up again goes on in the same
curves. Trackers cannot forget: what they were told before an interruption is noted in the run's folder, and not told
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from motet.errors import BadOption, UnknownName, described
from motet.runs import options
from motet.runs.callback import Beginning, Callback
from motet.runs.charts import curves, present
from motet.runs.finding import TRACKER
from motet.runs.metrics import Row
from motet.runs.policy import write_whole
from motet.runs.reading import Damaged, read_json

STEP = "global_step"
"""What curves lie over, as CleanRL calls it. Evaluations come later than the rows of their steps, which W&B's own count
of steps would not allow."""
PROJECT = "motet"
NOTED = 1.0
"""Seconds after which it is noted what the tracker has been told."""
NOBODY = "none"
IDENTITY = ("tracker", "project", "id", "name")
"""What a tracker knows a run by."""


@dataclass(frozen=True)
class Begun:
    """A run of a tracker."""

    log: Callable[[int, Mapping[str, float]], object]
    finish: Callable[[bool], object]
    """Told whether the run failed."""


def _wandb(library: Any, told: Mapping[str, Any], folder: Path | None) -> Begun:
    """Its own messages stay silent: they would go through the display."""
    run = library.init(
        project=told["project"],
        id=told["id"],
        name=told["name"],
        config=told["config"],
        dir=None if folder is None else str(folder),
        resume="allow",
        settings=library.Settings(silent=True, console="off"),
    )
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP)
    return Begun(lambda steps, points: run.log({STEP: steps, **points}), lambda bad: run.finish(exit_code=int(bad)))


def _trackio(library: Any, told: Mapping[str, Any], folder: Path | None) -> Begun:
    """It knows runs by their names, and takes steps in any order."""
    with _silence():
        name = f"{told['name']}-{told['id']}"
        run = library.init(project=told["project"], name=name, config=told["config"], resume="allow")

    def finish(bad: bool) -> None:
        with _silence():
            library.finish()

    return Begun(lambda steps, points: run.log({STEP: steps, **points}, step=steps), finish)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


TRACKERS: dict[str, Callable[[Any, Mapping[str, Any], Path | None], Begun]] = {"wandb": _wandb, "trackio": _trackio}
"""Name -> what begins a run there, or goes on with it."""


def tracker(name: str | None) -> list[Callback]:
    """What tells the tracker of that name, if there is one."""
    if name in (None, NOBODY):
        return []
    if name not in TRACKERS:
        raise UnknownName("tracker", str(name), (*TRACKERS, NOBODY))
    return [Tracker(name)]


def tracked(config: Mapping[str, Any]) -> str | None:
    """The tracker that a run's configuration names."""
    how = config.get("run")
    name = how.get("track") if isinstance(how, dict) else None
    return name if name in TRACKERS else None


class Tracker(Callback):
    """Tells a tracker of a run. If that fails, the training goes on: it is worth more than its curve."""

    def __init__(self, name: str):
        self.name = name
        try:
            self.library = import_module(name)
        except ImportError as error:
            raise BadOption(f"To track with {name}, install it: pip install 'motet[{name}]' ({error}).") from None
        self._run: Begun | None = None
        self._folder: Path | None = None
        self._told: dict[str, Any] = {}
        self._before: dict[str, float] = {}
        """How far the rows and the evaluations went that were told before this process."""
        self._noted = 0.0
        self._steps = 0
        self._trouble: list[str] = []

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._trouble)

    def begin(self, run: Beginning) -> None:
        self._folder, self._steps = run.run_dir, run.first_step
        self._told = self._noted_before() or {
            **(self._of_checkpoint(run.tracked) or self._new(run)),
            "rows": self._steps,
            "evaluations": self._steps,
        }
        self._before = {name: self._told[name] for name in ("rows", "evaluations")}
        config = {
            "algorithm": run.names.algorithm,
            "environment": run.names.environment,
            "plan": run.plan.name,
            "seed": run.seed,
            "total_timesteps": run.total_steps,
            **{f"options/{name}": value for name, value in options.to_json(run.algorithm).items()},
        }
        try:
            self._run = TRACKERS[self.name](self.library, {**self._told, "config": config}, self._folder)
        except Exception as error:  # whatever a library of others raises: no network, no account, no disk
            raise BadOption(f"{self.name} cannot track this run: {described(error)}") from error
        self._note()

    def row(self, row: Row) -> None:
        self._steps = int(row["steps"] or 0)
        self._tell("rows", self._steps, curves(row))

    def usage(self, usage: Mapping[str, float]) -> None:
        self._tell("rows", self._steps, {f"perf/{name}": value for name, value in usage.items()})

    def evaluation(self, evaluation: Any) -> None:
        self._tell("evaluations", evaluation.steps, present(evaluation.curves()))

    def checkpoint(self, iteration: int) -> None:
        self._attempt(lambda run: self._note())

    def end(self, outcome: Any) -> None:
        self._attempt(lambda run: self._note())
        self._attempt(lambda run: run.finish(isinstance(outcome, BaseException)))
        self._run = None

    def _tell(self, kind: str, steps: int, points: Mapping[str, float]) -> None:
        if self._run is None or not points or steps <= self._before[kind]:
            return
        self._told[kind] = max(self._told[kind], steps)
        self._attempt(lambda run: run.log(steps, points))
        if time.monotonic() - self._noted > NOTED:
            self._attempt(lambda run: self._note())

    def _attempt(self, what: Callable[[Begun], object]) -> None:
        """Do it, or if that cannot be, say so and tell no more."""
        if self._run is None:
            return
        try:
            what(self._run)
        except Exception as error:
            self._trouble.append(f"{self.name} was not told everything: {described(error)}")
            self._run = None

    @property
    def identity(self) -> dict[str, str]:
        """What the tracker calls the run: what a checkpoint keeps."""
        return {name: self._told[name] for name in IDENTITY}

    def _new(self, run: Beginning) -> dict[str, str]:
        return {
            "tracker": self.name,
            "project": os.environ.get(f"{self.name.upper()}_PROJECT") or PROJECT,
            "id": secrets.token_hex(4),
            "name": run.run_dir.name if run.run_dir else f"{run.names.algorithm}-{run.graph.environment}",
        }

    def _of_checkpoint(self, told: Any) -> dict[str, str] | None:
        """What the checkpoint that a run is taken up from says of the same tracker: all there is, if the folder has
        lost what was noted, or if the checkpoint was brought to another one."""
        whole = isinstance(told, dict) and all(isinstance(told.get(name), str) for name in IDENTITY)
        return {name: told[name] for name in IDENTITY} if whole and told["tracker"] == self.name else None

    def _noted_before(self) -> dict[str, Any] | None:
        """What was noted of a run that is taken up again with the same tracker."""
        if self._folder is None or not (self._folder / TRACKER).is_file():
            return None
        told = read_json(self._folder / TRACKER)
        kinds = {**dict.fromkeys(IDENTITY, str), "rows": int, "evaluations": int}
        if not isinstance(told, dict) or any(not isinstance(told.get(name), kind) for name, kind in kinds.items()):
            raise Damaged(f"{self._folder / TRACKER} is damaged: it does not say which run of a tracker this is.")
        return {name: told[name] for name in kinds} if told["tracker"] == self.name else None

    def _note(self) -> None:
        self._noted = time.monotonic()
        if self._folder is not None:
            write_whole(self._folder / TRACKER, (json.dumps(self._told, indent=2) + "\n").encode())
