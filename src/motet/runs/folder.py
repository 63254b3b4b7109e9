"""A run's folder: what was run, how it went, and the policy that came out. Plain files, none of which runs code.

A folder belongs to one run at a time (`claim.py`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from motet.errors import BadOption, described
from motet.runs import options
from motet.runs.callback import Beginning, Callback
from motet.runs.claim import RUNNING, Claim, in_use, is_claimed
from motet.runs.finding import BEST, CONFIG, EVALUATIONS, FORMAT, METRICS, STATE
from motet.runs.metrics import Row
from motet.runs.policy import Policy, write_whole
from motet.runs.system import command, system


def fresh(base: Path, name: str) -> Path:
    """Make a new folder below `base`, named for what runs and when. No other run gets the same one."""
    stamp, count = time.strftime("%Y%m%d-%H%M%S"), 1
    base.mkdir(parents=True, exist_ok=True)
    while True:
        path = base / (f"{name}-{stamp}" if count == 1 else f"{name}-{stamp}-{count}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            count += 1


class Writer(Callback):
    """Writes one run's folder."""

    def __init__(self, path: Path, command: Sequence[str] | None = None, resumes: bool = False):
        """A new folder, or one whose run is taken up again. `command` is what did it, by default that of this
        process."""
        if path.is_dir() and not resumes and _holds_something(path):
            raise _taken(path)
        if path.exists() and not path.is_dir():
            raise BadOption(f"{path} is a file; name a folder with run_dir.")
        self.path = path.absolute()
        self._command = command
        self._trouble: list[str] = []
        self._files: dict[str, str] = {}
        self._metrics: Any = None
        self._claim: Claim | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._trouble)

    def begin(self, run: Beginning) -> None:
        """Take the folder, and write down what is run."""
        graph, plan = run.graph, run.plan
        about = system()
        config = {
            "format": FORMAT,
            **run.names.told(),
            "options": options.to_json(run.algorithm),
            "seed": run.seed,
            "iterations": graph.iterations,
            "steps": run.total_steps,
            "plan": json.loads(plan.to_json()),
            "per_replica": list(plan.per_replica),
            "devices": jax.device_count(),
            "run": dict(run.how),
            "versions": about["versions"],
        }
        self._files = {
            CONFIG: json.dumps(config, indent=2) + "\n",
            "plan.json": plan.to_json() + "\n",
            "command.txt": self._commands(),
            "system.json": json.dumps(about, indent=2) + "\n",
        }
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._claim = Claim(self.path)
            (self.path / STATE).unlink(missing_ok=True)
            if not run.first_iteration:
                _clear(self.path)
            self._describe(self.path)
            self._metrics = self._opened(run.history)
        except OSError as error:
            raise BadOption(f"The run's folder {self.path} cannot be written: {error.strerror}.") from error

    def row(self, row: Row) -> None:
        """Write a row of metrics. If that fails the training goes on: it is worth more than its curve."""
        if self._metrics is None:
            return
        try:
            self._metrics.write(json.dumps(row) + "\n")
        except OSError as error:
            self._trouble.append(f"{self.path / 'metrics.jsonl'} ends early: {error.strerror}")
            with contextlib.suppress(OSError):
                self._metrics.close()
            self._metrics = None

    def policy(self, policy: Policy) -> None:
        policy.save(self.path)

    def rescue(self, policy: Policy) -> Path:
        """Save the policy, and what it belongs to, in a new folder for temporary files."""
        place = Path(tempfile.mkdtemp(prefix=f"motet-{self.path.name}-"))
        self._describe(place)
        policy.save(place)
        return place

    def end(self, outcome: Any) -> None:
        if self._claim is not None:
            told = json.dumps(_state(outcome), indent=2) + "\n"
            with contextlib.suppress(OSError):
                write_whole(self.path / STATE, told.encode())
        self.close()

    def close(self) -> None:
        if self._metrics is not None:
            with contextlib.suppress(OSError):
                self._metrics.close()
            self._metrics = None
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    def _opened(self, history: Sequence[Row]) -> Any:
        """The file of metrics, with the rows of the time before the run was taken up again and no others."""
        file = self.path / METRICS
        write_whole(file, "".join(json.dumps(row) + "\n" for row in history).encode())
        return file.open("a", buffering=1)

    def _commands(self) -> str:
        """What made the run, and what took it up again, a line each."""
        file = self.path / "command.txt"
        before = file.read_text(errors="replace") if file.is_file() else ""
        return before + command(self._command)

    def _describe(self, folder: Path) -> None:
        for name, text in self._files.items():
            write_whole(folder / name, text.encode())


def read_rows(run: Path) -> list[Row]:
    """The rows of metrics that a run has written; what is no row, as the last one of a run that was killed, is left
    out."""
    rows = []
    with contextlib.suppress(FileNotFoundError), (run / METRICS).open(errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("iteration"), int):
                    rows.append(row)
    return rows


def _state(outcome: Any) -> dict[str, Any]:
    """How a run ended, for whoever lists it."""
    if isinstance(outcome, BaseException):
        interrupted = isinstance(outcome, KeyboardInterrupt | SystemExit)
        return {"state": "interrupted" if interrupted else "failed", "error": described(outcome)}
    return {
        "state": "finished",
        "steps": outcome.steps,
        "iterations": outcome.iterations,
        "seconds": round(outcome.seconds, 3),
        "compile_seconds": round(outcome.compile_seconds, 3),
    }


def _holds_something(path: Path) -> bool:
    """Whether a folder is more than what a run leaves that was killed before it had written its first file."""
    left = any(each.name != RUNNING and each.suffix != ".part" for each in path.iterdir())
    return left or is_claimed(path)


def _taken(path: Path) -> BadOption:
    if is_claimed(path):
        return in_use(path)
    hint = ""
    if (path / CONFIG).is_file():
        hint = f" `motet resume {path}` goes on with the run in it, `motet train --config {path}` repeats it."
    return BadOption(f"The folder {path} already holds something; name another one with run_dir.{hint}")


def _clear(path: Path) -> None:
    """Remove what is left of a run that begins once more, since it was killed before it was first saved."""
    for each in (*path.glob("events.out.*"), *path.glob("*.part"), path / EVALUATIONS):
        each.unlink(missing_ok=True)
    for each in (BEST, "checkpoints"):
        shutil.rmtree(path / each, ignore_errors=True)
