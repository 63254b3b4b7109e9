"""Evaluations during training: what one gave, the file of all of them, and the best policy's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.errors import MotetError
from motet.runs.callback import Beginning
from motet.runs.evaluate import Evaluation
from motet.runs.evaluations import read_evaluations
from motet.runs.finding import BEST, CONFIG, EVALUATIONS
from motet.runs.policy import Policy, write_whole
from motet.runs.reading import read_json
from motet.runs.tables import FileWriter

SCORE = "evaluation.json"
CURVES = ("eval/return", "eval/return_std", "eval/length", "eval/episodes")
"""What an evaluation says, as curves are called."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of the policy that the learner had after so many iterations."""

    iteration: int
    steps: int
    """Environment steps that training had taken."""
    seconds: float
    """What the evaluation took."""
    scores: Evaluation
    is_best: bool
    """Whether no evaluation of the run before was as good."""
    policy: Policy = field(repr=False, compare=False)

    @property
    def mean(self) -> float:
        return self.scores.mean

    def curves(self) -> dict[str, float]:
        scores = self.scores
        values = (scores.mean, float(scores.returns.std()), float(scores.lengths.mean()), len(scores.returns))
        return dict(zip(CURVES, values, strict=True))

    def row(self) -> dict[str, Any]:
        """As `evaluations.jsonl` has it."""
        return {"iteration": self.iteration, "steps": self.steps, "seconds": round(self.seconds, 3), **self.curves()}


class EvaluationWriter(FileWriter):
    """`evaluations.jsonl`, and the best policy so far in `best/`, with its score."""

    def __init__(self, folder: Path):
        super().__init__(folder / EVALUATIONS)
        self.best = folder / BEST

    def begin(self, run: Beginning) -> None:
        self.attempt(lambda: self._begin(run.first_iteration))

    def _begin(self, first_iteration: int) -> None:
        """A run that goes on keeps what was evaluated before that."""
        kept = read_evaluations(self.path.parent, first_iteration)
        write_whole(self.path, "".join(f"{json.dumps(row)}\n" for row in kept).encode())
        self._open = self.path.open("a", buffering=1)

    def evaluation(self, evaluation: Evaluated) -> None:
        self.attempt(lambda: self._write(evaluation))

    def _write(self, evaluation: Evaluated) -> None:
        if self._open is None:
            return
        self._open.write(json.dumps(evaluation.row()) + "\n")
        if evaluation.is_best:
            self.best.mkdir(exist_ok=True)
            evaluation.policy.save(self.best)
            told = {"return": evaluation.mean, **evaluation.row()}
            write_whole(self.best / SCORE, (json.dumps(told, indent=2) + "\n").encode())
            for name in (CONFIG, "plan.json"):  # with them it is a run's folder of its own
                write_whole(self.best / name, (self.path.parent / name).read_bytes())


def best_score(run: Path) -> float | None:
    """The score of the best policy that a run's folder holds, if there is one."""
    try:
        score = read_json(run / BEST / SCORE)["return"]
    except (OSError, MotetError, KeyError, TypeError):
        return None
    return float(score) if isinstance(score, int | float) else None
