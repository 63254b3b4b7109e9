"""`train`: an algorithm, an environment and a plan -> a trained policy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from motet import algorithms, bounds, envs, forked
from motet.engine.assemble import Limits, Settings
from motet.engine.conditions import conditions
from motet.engine.place import devices_for
from motet.engine.run import Mode, Outcome, Reporter, finish, gather, prepare
from motet.errors import BadOption, Diverged, NotSaved
from motet.flow.algorithm import Algorithm, Spec
from motet.flow.environment import Environment
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.plan import presets
from motet.plan.check import check, violations
from motet.plan.plan import Plan
from motet.result import Result
from motet.runs import folder, options
from motet.runs.display import Display
from motet.runs.metrics import Meter, Row
from motet.runs.policy import Policy


def train(
    algorithm: Algorithm | str,
    env: Environment | HostEnvironment | str | Callable[[], Any],
    plan: Plan | str | None = None,
    *,
    total_timesteps: int = 500_000,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    display: Display | None = None,
    mode: Mode = "threads",
    timeout: float = 600.0,
    step_timeout: float = 60.0,
    restarts: int = 3,
) -> Result:
    """Train `algorithm` on `env` as `plan` says.

    `env` is an id, an environment, or a function that makes a Gymnasium environment. Without a plan, the whole loop
    is one compiled program on all devices that divide the environments; environments that are not written in JAX are
    asked by it, in worker processes beside it where that pays. With `mode="serial"` the same programs run in one
    thread, for debugging.

    How it goes is shown on a terminal and in a notebook; `progress` True shows it elsewhere too, and False nowhere. Who
    wants to show it otherwise gives a `display`. `run_dir` is a folder for what comes of it.

    `timeout` is how many seconds one part may wait for another before the run is stopped, `step_timeout` how many a
    step of host environments may take, and `restarts` how often dead workers are started anew.
    """
    forked.refuse()
    display = display or _display(progress)
    with conditions():
        algorithm, env = _made(algorithm, env)
        _check_limits(timeout, step_timeout, restarts)
        chosen = find_plan(plan) if plan is not None else default_plan(algorithm, env)
        devices = devices_for(chosen)
        counts = {platform: len(found) for platform, found in devices.items()}
        graph = trace(algorithm, env, total_timesteps=total_timesteps, cuts=chosen.cuts())
        if plan is None and violations(graph, chosen, counts):
            chosen = presets.anakin()  # this loop cannot be cut over several devices
        check(graph, chosen, counts)
        spec = Spec(env.observation_space, env.action_space, graph.iterations)
        settings = Settings(seed, Limits(timeout, step_timeout, restarts))
        bounds.take(env)  # what other runs saw
        networks = tuple(options.code_names(options.to_json(algorithm)))
        names = folder.Names(algorithms.name_of(algorithm), *envs.origin(env), networks)
        result = _Session(graph, chosen, algorithm.bind(spec), settings, run_dir, display, mode, names).run(devices)
        return replace(result, outside=bounds.take(env))


def _display(progress: bool | None) -> Display | None:
    """What shows a run if nobody says otherwise: something where a person looks on, nothing elsewhere."""
    if progress is False:
        return None
    from motet.runs.progress import live_display, seen_by_a_person

    return live_display() if progress or seen_by_a_person() else None


def _made(algorithm: Algorithm | str, env: Any) -> tuple[Algorithm, Environment | HostEnvironment]:
    """The algorithm and the environment that were named."""
    algorithm = algorithms.find(algorithm)() if isinstance(algorithm, str) else algorithm
    _expect("algorithm", algorithm, Algorithm, "a name such as 'ppo' or an algorithm such as motet.PPO()")
    env = envs.as_environment(env)
    return algorithm, env


def _check_limits(timeout: float, step_timeout: float, restarts: int) -> None:
    for name, seconds in (("timeout", timeout), ("step_timeout", step_timeout)):
        if seconds <= 0:
            raise BadOption(f"{name} must be above 0 seconds, got {seconds}")
    if restarts < 0:
        raise BadOption(f"restarts must be at least 0, got {restarts}")


def _expect(what: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kind):
        hint = f"; {value.__name__} is a class: make one of it with ()" if isinstance(value, type) else ""
        raise BadOption(f"{what} must be {wanted}, got {value!r}{hint}.")


def find_plan(plan: Plan | str) -> Plan:
    """A plan as it is, from a file that ends in .json, or the preset of that name."""
    if isinstance(plan, str):
        return Plan.from_json(Path(plan).read_text()) if plan.endswith(".json") else presets.preset(plan)
    if not isinstance(plan, Plan):
        hint = f": call it, as {getattr(plan, '__name__', 'preset')}()" if callable(plan) else ""
        raise BadOption(f"plan must be a motet.Plan, a preset's name or a .json file, got {plan!r}{hint}.")
    return plan


def default_plan(algorithm: Algorithm, env: Environment | HostEnvironment) -> Plan:
    """Everything in one program, on as many devices as divide the environments. Host environments are asked by that
    program, on one device: in worker processes, one for each core, unless there is one environment alone or their steps
    are so light that processes would only cost time."""
    if isinstance(env, HostEnvironment):
        alone = env.light or algorithm.num_envs == 1
        return presets.multi_learner(1, workers=0 if alone else min(os.cpu_count() or 1, algorithm.num_envs))
    shards = max(n for n in range(1, jax.device_count() + 1) if algorithm.num_envs % n == 0)
    return presets.anakin(shards)


@dataclass
class _Session:
    """One call of `train` whose input is known to be good."""

    graph: Graph
    plan: Plan
    algorithm: Algorithm
    settings: Settings
    run_dir: str | Path | None
    display: Display | None
    mode: Mode
    names: folder.Names

    def __post_init__(self) -> None:
        self.steps = self.graph.prefill_steps + self.graph.iterations * self.graph.steps_per_iteration
        self.writer = folder.Writer(Path(self.run_dir)) if self.run_dir is not None else None

    def run(self, devices: Any) -> Result:
        start = time.monotonic()
        meter = Meter(self.graph.steps_per_iteration, self.graph.prefill_steps, self._row, self._status)
        try:
            if self.writer:
                self.writer.begin(self.graph, self.plan, self.algorithm, self.settings.seed, self.names)
            if self.display:
                self.display.begin(self.graph, self.plan, self.steps)
            reporter = Reporter(self.graph, self.plan, meter)
            meter.use(reporter.columns.names, reporter.columns.every)
            assembly = prepare(self.graph, self.plan, devices, reporter, self.settings)
            outcome = finish(assembly, reporter, self.graph.iterations, self.mode)
            meter.finish()
            return self._result(outcome, gather(self.graph, outcome, self.graph.roles.learner), meter, start)
        except Diverged as error:
            raise self._diverged(error, meter, start) from None
        finally:
            if self.display:
                self.display.end()
            if self.writer:
                self.writer.close()

    def _result(self, outcome: Outcome, learner: Any, meter: Meter, start: float) -> Result:
        policy = Policy(self.algorithm, jax.device_get(self.algorithm.policy(learner)))
        result = Result(
            policy=policy,
            state=learner,
            history=meter.history,
            steps=self.graph.prefill_steps + outcome.iterations * self.graph.steps_per_iteration,
            iterations=outcome.iterations,
            seconds=time.monotonic() - start,
            compile_seconds=outcome.compile_seconds,
            plan=self.plan,
            links=outcome.links,
            accounts=outcome.accounts,
            run_dir=self.writer.path if self.writer else None,
            warnings=tuple(self.writer.warnings) if self.writer else (),
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

    def _row(self, row: Row) -> None:
        if self.writer:
            self.writer.row(row)
        if self.display:
            self.display.row(row)

    def _status(self, text: str) -> None:
        if self.display:
            self.display.status(text)
