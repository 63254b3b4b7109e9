"""One run whose input is known to be good: drive it, follow it, save it, and say what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax

from motet import algorithms, bounds, envs
from motet.engine.assemble import Assembly, Settings
from motet.engine.run import Mode, Outcome, Reporter, finish, gather, prepare
from motet.engine.usage import Usage
from motet.errors import Diverged, Interrupted, NotSaved
from motet.flow.algorithm import Algorithm, Spec
from motet.flow.environment import Environment
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment
from motet.interruption import stopping
from motet.plan.plan import Plan
from motet.result import Result
from motet.runs import checkpoints, folder, options
from motet.runs.anatomy import Anatomy
from motet.runs.callback import Beginning, Callback, Callbacks
from motet.runs.diverging import Divergence
from motet.runs.evaluated import EvaluationWriter
from motet.runs.evaluations import read_evaluations
from motet.runs.metrics import Meter, Row
from motet.runs.names import Names
from motet.runs.policy import Policy
from motet.runs.saver import Saver
from motet.runs.tables import Events, Table
from motet.runs.tracker import Tracker
from motet.saving import Interval, Saving
from motet.start import Start
from motet.watching import Wanted, Watch, watching


class Lead(Protocol):
    """Runs a session over hosts."""

    address: str | None
    recoveries: Sequence[Any]

    def __call__(self, session: Session, reporter: Reporter, meter: Meter) -> tuple[Outcome, int | None]:
        """To the end, saving on the way -> what came of it, and the signal that ended it, if one did."""
        ...


@dataclass
class Session:
    """One run whose input is known to be good."""

    graph: Graph
    plan: Plan
    algorithm: Algorithm
    env: Environment | HostEnvironment
    settings: Settings
    names: Names
    run_dir: str | Path | None
    command: Sequence[str] | None
    callbacks: Sequence[Callback]
    mode: Mode
    interval: Interval = Interval()
    wanted: Wanted = Wanted()
    start: Start | None = None
    """Where a run is taken up again."""
    anew: str = ""
    """Why a run begins once more in its own folder; empty, if the folder is new or the run goes on."""
    lead: Lead | None = None
    """If the run lies over hosts: what leads them."""

    @staticmethod
    def of(graph: Graph, plan: Plan, algorithm: Algorithm, env: Any, settings: Settings, *more: Any) -> Session:
        """A run of an algorithm that is not bound to its task yet."""
        bounds.take(env)  # what other runs saw
        told = options.to_json(algorithm)
        code = tuple(options.code_names(told)), tuple(options.learning_names(told))
        names = Names(algorithms.name_of(algorithm), *envs.origin(env), *code)
        bound = algorithm.bind(Spec(env.observation_space, env.action_space, graph.iterations))
        return Session(graph, plan, bound, env, settings, names, *more)

    def __post_init__(self) -> None:
        self.steps = self.graph.steps_after(self.graph.iterations)
        self.warnings: list[str] = [*(self.start.warnings if self.start else ()), *filter(None, [self.anew])]
        self.writer = None
        if self.run_dir is not None:
            again = self.start is not None or bool(self.anew)
            self.writer = folder.Writer(Path(self.run_dir), self.command, again)
        place = self.writer.path if self.writer else Path()
        writers = [self.writer, Table(place), Events(place), Anatomy()] if self.writer else []
        writers += [EvaluationWriter(place)] if self.writer and self.wanted.evaluations.wanted else []
        self.following = Callbacks([*writers, Divergence(), *self.callbacks])
        self.tracker = next((each for each in self.callbacks if isinstance(each, Tracker)), None)
        self.usage: Usage | None = None
        self.watch = Watch()

    def run(self, devices: Any) -> Result:
        start = time.monotonic()
        following = self.following
        meter = Meter(self.graph.steps_per_iteration, self.graph.prefill_steps, self._row, following.status)
        try:
            try:
                result = self._train(meter, devices, start)
            except Diverged as error:
                raise self._diverged(error, meter, start) from None
        except BaseException as error:
            following.end(error)
            raise
        following.end(result)
        return result

    def _train(self, meter: Meter, devices: Any, start: float) -> Result:
        self.following.begin(self._beginning())
        reporter = Reporter(self.graph, self.plan, meter)
        meter.use(reporter.columns.names, reporter.columns.every)
        try:
            if self.lead is None:
                outcome, caught = self._train_here(reporter, meter, devices)
            else:
                outcome, caught = self.lead(self, reporter, meter)
            learner = gather(self.graph, outcome, self.graph.roles.learner)
            self.watch.finish(outcome.iterations, learner, interrupted=caught is not None)
        except BaseException:
            self.watch.leave()
            raise
        meter.finish()
        result = self._result(outcome, learner, meter, start)
        if caught is not None and outcome.iterations < self.graph.iterations:
            raise Interrupted(caught, result)
        return result

    def _train_here(self, reporter: Reporter, meter: Meter, devices: Any) -> tuple[Outcome, int | None]:
        """In this process -> what came of it, and the signal that ended it, if one did."""
        assembly = prepare(self.graph, self.plan, devices, reporter, self.settings)
        self.usage = Usage(assembly)
        if self.start is not None:
            self.start.load(assembly, meter)
            checkpoints.forget_after(self.start.run, self.start.iteration)
        reporter.visitors = [*reporter.visitors, *self.watched(reporter, meter).visitors]
        return self._drive(assembly, reporter, meter)

    def watched(self, reporter: Reporter, meter: Meter) -> Watch:
        """Begin to watch a run that has been put where it begins."""
        self.watch = watching(self, reporter, self.start.iteration if self.start else 0)
        for row in meter.history:  # of before, if the run goes on: what it was to stop for may be among them
            self.watch.row(row)
        return self.watch

    def _drive(self, assembly: Assembly, reporter: Reporter, meter: Meter) -> tuple[Outcome, int | None]:
        """Run to the end, and save on the way -> what came of it, and the signal that ended it, if one did."""
        until = self.graph.iterations
        if self.writer is None or not self.interval.keep:
            return finish(assembly, reporter, until, self.mode), None
        saving = self.saving(reporter, meter, self.writer.path)
        reporter.visitors = [*reporter.visitors, saving.cutter]
        reporter.on_told = saving.cutter.rows_told
        try:
            with stopping(saving.cutter.stop, self.following.status) as caught:
                outcome = finish(assembly, reporter, until, self.mode)
                saving.saver.close()
                return outcome, caught.signal
        except Exception:
            saving.saver.close()  # what was saved before is worth more now
            raise
        finally:
            self.warnings += saving.saver.warnings

    def saving(self, reporter: Reporter, meter: Meter, run: Path) -> Saving:
        begun = self.start.iteration if self.start else 0
        about = {
            "algorithm": self.names.algorithm,
            "environment": self.names.environment,
            "fingerprint": fingerprint(self.graph),
            "plan": self.plan.to_json(),
            "seed": self.settings.seed,
            "resumes": self.settings.resumes,
            "iterations": self.graph.iterations,
            "tracker": self.tracker.identity if self.tracker else None,
        }
        saver = Saver(run, self.interval.keep, self.start.scores if self.start else {}, self.following.checkpoint)
        return Saving(reporter, meter, saver, self.interval, about, begun)

    def _row(self, row: Row) -> None:
        self.following.row(row)
        self.watch.row(row)
        if self.usage and self.usage.due():
            self.following.usage(self.usage.look())

    def _beginning(self) -> Beginning:
        run_dir, start = self.writer.path if self.writer else None, self.start
        limits, interval = self.settings.limits, self.interval
        how = {
            "serial": self.mode == "serial",
            "timeout": limits.timeout,
            "step_timeout": limits.step_timeout,
            "restarts": limits.restarts,
            "checkpoint_seconds": interval.seconds,
            "checkpoint_steps": interval.steps,
            "keep": interval.keep,
            **({"hosts": self.plan.hosts, "address": self.lead.address} if self.lead else {}),
            "track": self.tracker.name if self.tracker else None,
            **self.wanted.told(),
        }
        told = (self.graph, self.plan, self.algorithm, self.settings.seed, self.steps, self.names, how, run_dir)
        evaluated = read_evaluations(start.run, start.iteration) if start else ()
        before = (start.iteration, start.history, evaluated) if start else (0, (), ())
        tracked = start.told.get("tracker") if start else None
        return Beginning(*told, *before, tracked=tracked, notes=tuple(self.warnings))

    def _result(self, outcome: Outcome, learner: Any, meter: Meter, start: float) -> Result:
        policy = Policy(self.algorithm, jax.device_get(self.algorithm.policy(learner)))
        result = Result(
            policy=policy,
            state=learner,
            history=meter.history,
            steps=self.graph.steps_after(outcome.iterations),
            iterations=outcome.iterations,
            seconds=time.monotonic() - start,
            compile_seconds=outcome.compile_seconds,
            plan=self.plan,
            links=outcome.links,
            accounts=outcome.accounts,
            timeline=outcome.timeline,
            run_dir=self.writer.path if self.writer else None,
            outside=sum(outcome.left, bounds.take(self.env)) + self.watch.outside,
            evaluations=self.watch.evaluations,
            best=self.watch.best,
            stopped=self.watch.stopped,
            recoveries=tuple(self.lead.recoveries) if self.lead else (),
            warnings=(*self.following.warnings, *self.watch.warnings, *self.warnings),
        )
        self._save(result)
        return result

    def _save(self, result: Result) -> None:
        """Write the policy into the run's folder, or if that cannot be, anywhere."""
        if self.writer is None:
            return
        try:
            self.writer.policy(result.policy)
        except OSError as error:
            trouble = f"The policy cannot be saved in {self.writer.path}: {error.strerror}."
            try:
                place = self.writer.rescue(result.policy)
            except OSError as second:
                trouble += f" Nor can it elsewhere: {second.strerror}. It is in this error's `result`."
                raise NotSaved(trouble, result) from error
            raise NotSaved(f"{trouble} It was saved in {place} instead.", result, place) from error

    def _diverged(self, error: Diverged, meter: Meter, start: float) -> Diverged:
        """The same error with the last good state as a result of its own."""
        if error.result is None:
            return error
        iteration, leaves = error.result
        learner = self.graph.variables[self.graph.roles.learner].unpack(leaves)
        outcome = Outcome(iteration, {}, (), (), 0.0)
        try:
            result = self._result(outcome, learner, meter, start)
        except NotSaved as unsaved:
            return Diverged(f"{error} {unsaved}", error.iteration, unsaved.result)
        where = f" It was saved in {result.run_dir}." if result.run_dir else " It is in this error's `result`."
        return Diverged(str(error) + where, error.iteration, result)
