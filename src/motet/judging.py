"""Evaluations while a run goes on: when one is due, and how it is played beside the training.

The learner's policy is copied between two of its iterations, and a thread plays episodes with the copy, on environments
of its own. Training goes on meanwhile and never sees anything of it. One evaluation is under way at a time: where the
next one is due before that, the learner waits. So evaluations are of the same policies on every machine, and a slow one
costs time, never a point of the curve.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from motet.bounds import Outside, Tally
from motet.engine.perform import Performer
from motet.engine.requests import Done
from motet.errors import BadOption, MotetError, described
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.flow.values import on_host
from motet.plan.plan import Plan
from motet.runs.evaluate import evaluate
from motet.runs.evaluated import Evaluated
from motet.runs.policy import Policy

GRACE = 5.0
"""Seconds that an evaluation has to come to its end when a run is ended by an error."""


@dataclass(frozen=True)
class Evaluations:
    """How often to evaluate during training, and how."""

    steps: int | None = None
    """Environment steps from one to the next, rounded up to whole iterations."""
    seconds: float | None = None
    episodes: int = 16
    explore: bool = False
    """Act as in training, instead of greedily."""

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("seconds", self.seconds), ("episodes", self.episodes)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise BadOption(f"eval_{name} must be a number, got {value!r}")
        if self.steps is not None and self.steps < 1:
            raise BadOption(f"eval_steps must be at least 1, got {self.steps}")
        if self.seconds is not None and not self.seconds > 0:
            raise BadOption(f"eval_seconds must be above 0, got {self.seconds}")
        if self.steps is not None and self.seconds is not None:
            raise BadOption("eval_steps and eval_seconds exclude each other; give one of them.")
        if self.episodes < 1:
            raise BadOption(f"eval_episodes must be at least 1, got {self.episodes}")

    @property
    def wanted(self) -> bool:
        return self.steps is not None or self.seconds is not None


class Judge:
    """A visitor that evaluates the learner's policy when that is due."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        algorithm: Algorithm,
        env: Any,
        wanted: Evaluations,
        *,
        seed: int,
        limits: Any,
        on_evaluation: Callable[[Evaluated], None],
        at_once: bool = False,
        best: float | None = None,
        begun: int = 0,
    ):
        """`at_once`: wait for each evaluation, since what it says may end the run. `best` is the best score of before,
        and `begun` after how many iterations the run goes on."""
        self.graph, self.algorithm, self.wanted, self.seed, self.limits = graph, algorithm, wanted, seed, limits
        self.env = _own(env)
        self.workers = max(fragment.workers for fragment in plan.fragments.values())
        self.every = math.ceil(wanted.steps / graph.steps_per_iteration) if wanted.steps else None
        self.owner = plan.learner(graph)
        self.on_evaluation, self.at_once, self.best_score = on_evaluation, at_once, best
        self.rows: list[dict[str, Any]] = []
        """What all evaluations gave."""
        self.best: Evaluated | None = None
        self.outside = Outside()
        self._trouble: list[str] = []
        self._last, self._next = begun, time.monotonic() + (wanted.seconds or 0)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.left = False
        """Whether nobody wants to know any more."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._trouble)

    def limit(self, iteration: int) -> int | None:
        return None if self.every is None else self.every - iteration % self.every

    def visit(self, performer: Performer, done: Done) -> None:
        worker = performer.worker
        if worker.fragment != self.owner or worker.index or not self._is_due(done.iteration):
            return
        self.wait()
        self.begin(done.iteration, worker.variables[self.graph.roles.learner])
        if self.at_once:
            self.wait()

    def begin(self, iteration: int, leaves: tuple[Any, ...]) -> None:
        """Evaluate the learner state after so many iterations, while no other evaluation is under way."""
        learner = self.graph.variables[self.graph.roles.learner].unpack(leaves)
        self._begin(iteration, self.algorithm.policy(learner))

    @property
    def busy(self) -> bool:
        """Whether an evaluation is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_time(self) -> bool:
        """Whether evaluations come at times, and it is time for one."""
        return self.every is None and not self.busy and time.monotonic() >= self._next

    def reach(self) -> int | None:
        """After how many iterations a learner that no visit holds up must wait for now; None: it need not.

        That is where the next evaluation is due, or with `at_once` where this one is of."""
        if self.every is None:
            return None
        return (self._last // self.every + (not self.busy) + (not self.at_once)) * self.every

    def finish(self, iteration: int, learner: Any) -> None:
        """The run is over: evaluate what came of it, if that has not been, and wait for all that is under way."""
        self.wait()
        if iteration > self._last:
            self._begin(iteration, self.algorithm.policy(learner))
            self.wait()

    def wait(self) -> None:
        """Until the evaluation under way is over. What it, or whoever was told of it, raised is raised here."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def leave(self) -> None:
        """The run has ended by an error: tell nobody any more."""
        self.left = True
        if self._thread is not None:
            self._thread.join(GRACE)

    def _is_due(self, iteration: int) -> bool:
        if iteration <= self._last:
            return False
        return iteration % self.every == 0 if self.every is not None else time.monotonic() >= self._next

    def _begin(self, iteration: int, params: Any) -> None:
        self._last = iteration
        # A copy: the learner donates its own to the next iteration.
        policy = Policy(self.algorithm, jax.tree.map(on_host, params))
        self._thread = threading.Thread(
            target=self._evaluate, args=(iteration, policy), name="motet evaluation", daemon=True
        )
        self._thread.start()

    def _evaluate(self, iteration: int, policy: Policy) -> None:
        began = time.monotonic()
        try:
            scores = self._play(policy)
            if scores is None or self.left:
                return
            is_best = self.best_score is None or scores.mean > self.best_score
            steps = self.graph.steps_after(iteration)
            found = Evaluated(iteration, steps, time.monotonic() - began, scores, is_best, policy)
            if is_best:
                self.best, self.best_score = found, scores.mean
            self.rows.append(found.row())
            self.outside += scores.outside
            self.on_evaluation(found)
        except BaseException as error:  # raised where somebody looks
            self._failure = error
        finally:
            if self.wanted.seconds:
                self._next = time.monotonic() + self.wanted.seconds

    def _play(self, policy: Policy) -> Any:
        """An environment that fails here costs a point of a curve, not the training."""
        try:
            return evaluate(
                policy,
                self.env,
                episodes=self.wanted.episodes,
                seed=self.seed,
                explore=self.wanted.explore,
                workers=self.workers,
                step_timeout=self.limits.step_timeout,
                restarts=self.limits.restarts,
            )
        except MotetError as error:
            self._trouble.append(f"an evaluation failed: {described(error)}")
            return None


def _own(env: Any) -> Any:
    """The same environment, with a count of its own of observations out of bounds."""
    if isinstance(getattr(env, "outside", None), Tally):
        env = copy.copy(env)
        env.outside = Tally()
    return env
