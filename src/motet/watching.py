"""What looks at a run while it goes on and may end it: evaluations, and the condition under which it stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from motet.bounds import Outside
from motet.engine.assemble import Settings
from motet.engine.report import Columns
from motet.engine.run import Reporter, Visitor
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.judging import Evaluations, Judge
from motet.runs.evaluated import Evaluated, best_score
from motet.runs.metrics import COLUMNS, EPISODES, Row
from motet.runs.reading import Damaged
from motet.stopping import Stopper, Threshold

EVALUATION = tuple(each.name for each in fields(Evaluations))


@dataclass(frozen=True)
class Wanted:
    """What to evaluate, and when to stop."""

    evaluations: Evaluations = Evaluations()
    stop_when: str | Callable[[Row], bool] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop_when, str):
            Threshold.read(self.stop_when)
        elif self.stop_when is not None and not callable(self.stop_when):
            raise BadOption(
                "stop_when must be a comparison such as 'eval/return >= 475' or a function of a row, got "
                f"{self.stop_when!r}."
            )

    def check(self, graph: Graph) -> None:
        """Refuse a condition on what no row of this run will have."""
        if isinstance(self.stop_when, str):
            own = set(Columns(graph).names) - set(EPISODES)
            Threshold.read(self.stop_when).check({*COLUMNS, *own}, self.evaluations.wanted)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Wanted:
        """What a run's configuration says of it."""
        how = config.get("run", {})
        try:
            if not isinstance(how, dict):
                raise BadOption(f"run should be an object, but is {how!r}")
            evaluations = Evaluations(**{name: how[f"eval_{name}"] for name in EVALUATION if f"eval_{name}" in how})
            return cls(evaluations, how.get("stop_when"))
        except (TypeError, BadOption) as error:
            raise Damaged(f"The run's config.json is damaged: {error}.") from None

    def told(self) -> Mapping[str, Any]:
        """As a configuration has it. A function has no name there."""
        wanted = {f"eval_{name}": value for name, value in asdict(self.evaluations).items()}
        return {**wanted, "stop_when": self.stop_when if isinstance(self.stop_when, str) else None}


class Watched(Protocol):
    """What must be known of a run."""

    algorithm: Algorithm
    env: Any
    settings: Settings
    wanted: Wanted
    run_dir: str | Path | None
    following: Any


@dataclass(frozen=True)
class Watch:
    """The judge and the stopper of a run, where there are such."""

    judge: Judge | None = None
    stopper: Stopper | None = None

    @property
    def visitors(self) -> list[Visitor]:
        """The judge first: what it finds may be a reason to stop."""
        return [each for each in (self.judge, self.stopper) if each is not None]

    def row(self, row: Row) -> None:
        if self.stopper:
            self.stopper.row(row)

    def finish(self, iteration: int, learner: Any, interrupted: bool) -> None:
        """The run has ended. One that was interrupted is no end worth an evaluation: it will go on."""
        if self.judge and interrupted:
            self.judge.wait()
        elif self.judge:
            self.judge.finish(iteration, learner)

    def leave(self) -> None:
        if self.judge:
            self.judge.leave()

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return self.judge.rows if self.judge else []

    @property
    def best(self) -> Evaluated | None:
        return self.judge.best if self.judge else None

    @property
    def outside(self) -> Outside:
        return self.judge.outside if self.judge else Outside()

    @property
    def stopped(self) -> str:
        return self.stopper.reason if self.stopper else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.judge.warnings if self.judge else ()


def watching(run: Watched, reporter: Reporter, begun: int = 0) -> Watch:
    """What a run wants. It has `begun` after so many iterations."""
    wanted, stopper = run.wanted, None
    if wanted.stop_when is not None:
        stop_when = wanted.stop_when
        stopper = Stopper(Threshold.read(stop_when) if isinstance(stop_when, str) else stop_when, reporter)

    def tell(evaluated: Evaluated) -> None:
        if stopper:
            stopper.evaluation(evaluated)
        run.following.evaluation(evaluated)

    judge = None
    if wanted.evaluations.wanted:
        judge = Judge(
            reporter.graph,
            reporter.plan,
            run.algorithm,
            run.env,
            wanted.evaluations,
            seed=run.settings.seed,
            limits=run.settings.limits,
            on_evaluation=tell,
            at_once=stopper is not None,
            best=best_score(Path(run.run_dir)) if run.run_dir is not None else None,
            begun=begun,
        )
    return Watch(judge, stopper)
