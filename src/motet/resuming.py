"""`resume`: a run's folder -> the run that goes on from its last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from motet import algorithms, envs, forked, start
from motet.engine.assemble import Limits, Settings
from motet.engine.conditions import conditions
from motet.engine.hosts.cluster import Cluster
from motet.engine.place import devices_for
from motet.engine.run import Mode
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.leading import check as check_leading
from motet.leading import leading, spread
from motet.opened import Opened, open_run
from motet.plan.check import check
from motet.plan.plan import Plan
from motet.result import Result
from motet.runs.callback import Callback
from motet.runs.claim import in_use, is_claimed
from motet.runs.metrics import Row
from motet.runs.tracker import tracked
from motet.saving import Interval
from motet.session import Session
from motet.start import Start
from motet.training import find_plan, following
from motet.watching import Wanted


def resume(
    run_dir: str | Path,
    *,
    total_timesteps: int | None = None,
    plan: Plan | str | None = None,
    iteration: int | None = None,
    algorithm: Algorithm | None = None,
    env: Any = None,
    trust: bool = False,
    command: Sequence[str] | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    mode: Mode = "threads",
    timeout: float = 600.0,
    step_timeout: float = 60.0,
    restarts: int = 3,
    checkpoint_seconds: float | None = None,
    checkpoint_steps: int | None = None,
    keep: int = 3,
    stop_when: str | Callable[[Row], bool] | None = None,
    cluster: Cluster | None = None,
    track: str | None = None,
) -> Result:
    """Go on with the run of a folder, or with the `latest` one, from its newest checkpoint, or from that after so many
    iterations.

    Under the same plan, with fixed lags and an environment written in JAX, the run is the one that was never stopped,
    bit for bit. Host environments cannot be saved: they begin new episodes, and their first step counts as lost.

    `total_timesteps` may be more than before; schedules that follow a run's length are then stretched over the new one.
    Another `plan` works where it can use what the old one left. An `algorithm` or an `env` that cannot be found by name
    is given again; code that is named by a folder of somebody else's is only imported if you `trust` it. Evaluations go
    on as they were, and so does a `stop_when` that was a comparison; a function is given again. A tracker is told on,
    in the same curves; `track` may name another, or "none".

    A run over hosts goes on over as many, in the Ray cluster that it had unless another `cluster` is given.
    """
    forked.refuse()
    with conditions():
        opened = open_run(run_dir, "resume", trusted=trust, learns=algorithm is None)
        path = opened.path
        told = following(callbacks, progress, track or tracked(opened.config))
        if is_claimed(path):
            raise in_use(path)
        made = algorithm if algorithm is not None else opened.algorithm()
        task = envs.as_environment(env) if env is not None else opened.environment()
        _check_same(opened, made, task)
        anew = start.NEVER_SAVED if iteration is None and start.was_never_saved(path, opened.config) else ""
        found = None if anew else start.read(path, iteration)
        chosen = find_plan(plan) if plan is not None else opened.plan()
        cluster = cluster or _cluster(opened, chosen)
        chosen = spread(chosen, cluster)
        graph = _graph(opened, found.iteration if found else 0, made, task, chosen, total_timesteps)
        devices = devices_for(chosen)
        check(graph, chosen, {kind: len(each) for kind, each in devices.items()} if cluster is None else None)
        found = None if found is None else _compared(found, graph, chosen, task)
        resumes = found.resumes if found else 0
        settings = Settings(opened.number("seed"), Limits(timeout, step_timeout, restarts), resumes=resumes)
        interval = Interval(checkpoint_seconds, checkpoint_steps, keep)
        wanted = Wanted.read(opened.config)
        wanted = wanted if stop_when is None else replace(wanted, stop_when=stop_when)
        wanted.check(graph)
        if cluster is not None:
            check_leading(mode)
        with leading(cluster, made) as lead:
            how = (path, command, told, mode, interval, wanted, found, anew, lead)
            return Session.of(graph, chosen, made, task, settings, *how).run(devices)


def _cluster(opened: Opened, plan: Plan) -> Cluster | None:
    """The cluster of a run over hosts, as its folder has it."""
    if plan.hosts == 1:
        return None
    how = opened.config.get("run")
    address = how.get("address") if isinstance(how, dict) else None
    return Cluster(plan.hosts, address if isinstance(address, str) else None)


def _compared(found: Start, graph: Graph, plan: Plan, env: Environment | HostEnvironment) -> Start:
    """The checkpoint, with what will not be as it would have been."""
    exact, warnings = start.compare(found, graph, plan)
    if isinstance(env, HostEnvironment):
        warnings += ("the environments began new episodes, and the first step after that was not learned from",)
    return replace(found, exact=exact, warnings=warnings)


def _graph(opened: Opened, begun: int, algorithm: Algorithm, env: Any, plan: Plan, total: int | None) -> Graph:
    """The loop, for a run as long as it was meant to be or as it is to be now."""
    if total is None:
        graph = trace(algorithm, env, iterations=opened.number("iterations"), cuts=plan.cuts())
    else:
        graph = trace(algorithm, env, total_timesteps=total, cuts=plan.cuts())
    # A run that was killed when its last checkpoint was written, but not its policy, still has that to do.
    if graph.iterations < begun or (graph.iterations == begun and (opened.path / "policy.safetensors").exists()):
        steps = graph.prefill_steps + begun * graph.steps_per_iteration
        raise BadOption(
            f"{opened.path} has taken {steps:,} steps already, and so there is nothing left to do. To go on, give "
            "total_timesteps (--total-timesteps) more than that."
        )
    return graph


def _check_same(opened: Opened, algorithm: Algorithm, env: Environment | HostEnvironment) -> None:
    """Another algorithm or environment than the folder's is a mistake."""
    names = opened.names
    given, found = algorithms.name_of(algorithm), envs.origin(env)[0]
    if given != names.algorithm:
        raise BadOption(f"{opened.path} is a run of {names.algorithm}, and cannot go on with {given}.")
    if found != names.environment:
        raise BadOption(f"{opened.path} is a run on {names.environment}, and cannot go on with {found}.")
