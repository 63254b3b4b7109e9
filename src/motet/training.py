"""`train`: an algorithm, an environment and a plan -> a trained policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from motet import algorithms, envs, forked
from motet.engine.assemble import Limits, Settings
from motet.engine.conditions import conditions
from motet.engine.hosts.cluster import Cluster
from motet.engine.place import devices_for
from motet.engine.run import Mode
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.judging import Evaluations
from motet.leading import check as check_leading
from motet.leading import leading, spread
from motet.plan import presets
from motet.plan.check import check, violations
from motet.plan.plan import Plan
from motet.result import Result
from motet.runs.callback import Callback
from motet.runs.metrics import Row
from motet.runs.tracker import tracker
from motet.saving import Interval
from motet.session import Session
from motet.watching import Wanted

if TYPE_CHECKING:
    from motet.foretold import Foretold


def train(
    algorithm: Algorithm | str,
    env: Environment | HostEnvironment | str | Callable[[], Any],
    plan: Plan | str | None = None,
    *,
    total_timesteps: int = 500_000,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    command: Sequence[str] | None = None,
    mode: Mode = "threads",
    timeout: float = 600.0,
    step_timeout: float = 60.0,
    restarts: int = 3,
    checkpoint_seconds: float | None = None,
    checkpoint_steps: int | None = None,
    keep: int = 3,
    eval_steps: int | None = None,
    eval_seconds: float | None = None,
    eval_episodes: int = 16,
    eval_explore: bool = False,
    stop_when: str | Callable[[Row], bool] | None = None,
    cluster: Cluster | None = None,
    profile: bool | None = None,
    max_lag: int | None = None,
    track: str | None = None,
) -> Result:
    """Train `algorithm` on `env` as `plan` says.

    `env` is an id, an environment, or a function that makes a Gymnasium environment. Without a plan the planner chooses
    one (see docs/planner.md): it measures for at most 15 seconds, once for a loop and a machine, and permits a lag of
    `max_lag`; by default 1 for algorithms that learn from any lag, and 0 for others. With `profile` False a rule does:
    the whole loop is one compiled program on all devices that divide the environments; environments that are not
    written in JAX are asked by it, in worker processes beside it where that pays. With `mode="serial"` the same
    programs run in one thread, for debugging.

    How it goes is shown on a terminal and in a notebook; `progress` True shows it elsewhere too, and False nowhere.
    `callbacks` are told of each row of metrics and of the end. `run_dir` is a folder for what comes of it; `command` is
    what it says made the run, by default the command of this process.

    `timeout` is how many seconds one part may wait for another before the run is stopped, `step_timeout` how many a
    step of host environments may take, and `restarts` how often dead workers are started anew.

    A run with a folder is saved there every 30 seconds (or less often, where that would take more than 3% of the time),
    every `checkpoint_seconds`, or every `checkpoint_steps` environment steps, and at its end; `motet.resume` goes on
    from there. The last `keep` checkpoints remain, and the best one; with 0 none is made. Ctrl-C and SIGTERM save and
    stop such a run, which then raises `Interrupted`; a second one ends it at once.

    Every `eval_steps` environment steps, or `eval_seconds`, `eval_episodes` episodes are played with a copy of the
    policy, on environments of their own and beside the training, which goes as it would without: greedily, or with
    `eval_explore` as in training. The best policy is kept in `Result.best`, and in `best/` of the run's folder.
    `stop_when` ends the run early: a comparison such as "eval/return >= 475", or a function of a row of metrics, which
    also has what the last evaluation gave.

    With a `cluster` the plan lies over several hosts, each a process that Ray starts; without a plan they have an actor
    each, and the first one learns, which is said. What is computed is the same. A host that is lost is replaced, and
    the run goes on from the last state that was kept, as if nothing had been.

    `track` tells a tracker of the run: "wandb" or "trackio", which must be installed.
    """
    forked.refuse()
    told = following(callbacks, progress, track)
    with conditions():
        algorithm, env = _made(algorithm, env)
        _check_limits(timeout, step_timeout, restarts)
        foretold = None
        if plan is None and cluster is None and mode == "threads" and wants_profile(profile):
            plan, foretold = _foretold(algorithm, env, max_lag, told)
        chosen = find_plan(plan) if plan is not None else default_plan(algorithm, env, cluster)
        if plan is None and cluster is not None and wants_profile(profile):
            _announce(told, UNPLANNED.format(hosts=cluster.hosts, plan=chosen.name))
        chosen = spread(chosen, cluster)
        if cluster is not None:
            check_leading(mode)
        with leading(cluster, algorithm) as lead:
            devices = devices_for(chosen)
            # What devices hosts have, they say themselves.
            counts = {platform: len(found) for platform, found in devices.items()} if cluster is None else None
            graph = trace(algorithm, env, total_timesteps=total_timesteps, cuts=chosen.cuts())
            if plan is None and chosen.hosts == 1 and violations(graph, chosen, counts):
                chosen = presets.anakin()  # this loop cannot be cut over several devices
            check(graph, chosen, counts)
            settings = Settings(seed, Limits(timeout, step_timeout, restarts))
            interval = Interval(checkpoint_seconds, checkpoint_steps, keep)
            wanted = Wanted(Evaluations(eval_steps, eval_seconds, eval_episodes, eval_explore), stop_when)
            wanted.check(graph)
            told = [*told, foretold] if foretold else told
            how = (run_dir, command, told, mode, interval, wanted, None, "", lead)
            result = Session.of(graph, chosen, algorithm, env, settings, *how).run(devices)
        return replace(result, foretold=foretold.comparison) if foretold else result


PROFILE = "MOTET_PROFILE"
"""The variable of the environment that turns the planner on or off where `profile` says nothing: 1 or 0."""


def wants_profile(profile: bool | None) -> bool:
    """Whether the planner chooses where no plan is named."""
    return os.environ.get(PROFILE, "1") != "0" if profile is None else profile


def _foretold(
    algorithm: Algorithm, env: Environment | HostEnvironment, max_lag: int | None, told: Sequence[Callback]
) -> tuple[Plan | None, Foretold | None]:
    """The planner's choice, and what will compare it with what comes; neither, if it finds none. Whoever follows the
    run is told what is done."""
    from motet import planning
    from motet.foretold import Foretold

    try:
        choice = planning.choose(algorithm, env, lag=max_lag, announce=lambda text: _announce(told, text))
    except BadOption as error:
        _announce(told, f"no plan was chosen, the usual rule holds: {error}")
        return None, None
    best = choice.best
    if choice.left_out:
        _announce(told, choice.left_out)
    _announce(told, f"chose {choice.spelled(best.plan)}, {best.steps_per_second:,.0f} steps/s expected ({best.word})")
    if choice.forgoes_much:
        _announce(told, choice.forgone)
    return choice.plan, Foretold(best, choice.profile)


UNPLANNED = (
    "what hosts take is not measured, so the usual rule holds: {plan} over hosts={hosts} (`motet plan --hosts {hosts} "
    "--save FILE` chooses by what this machine takes, for --plan FILE)"
)
"""What is said of a run over hosts for which nobody names a plan."""


def _announce(told: Sequence[Callback], text: str) -> None:
    for each in told:
        each.planning(text)


def following(callbacks: Sequence[Callback], progress: bool | None, track: str | None) -> list[Callback]:
    """All who follow a run, whatever shows it included."""
    return [*tracker(track), *_taken(callbacks), *_display(progress)]


def _display(progress: bool | None) -> list[Callback]:
    """What shows a run if nobody says otherwise: something where a person looks on, nothing elsewhere."""
    if progress is False:
        return []
    from motet.runs.display import live_display, seen_by_a_person

    return [live_display()] if progress or seen_by_a_person() else []


def _taken(callbacks: Sequence[Callback]) -> Sequence[Callback]:
    if isinstance(callbacks, Callback):
        raise BadOption(f"callbacks must be a list, got {callbacks!r} alone: write callbacks=[...].")
    return callbacks


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


def default_plan(algorithm: Algorithm, env: Environment | HostEnvironment, cluster: Cluster | None = None) -> Plan:
    """Everything in one program, on as many devices as divide the environments. Host environments are asked by that
    program, on one device: in worker processes, one for each core, unless there is one environment alone or their steps
    are so light that processes would only cost time. Of several hosts each has an actor, and the first one learns."""
    if cluster is not None and cluster.hosts > 1:
        share = algorithm.num_envs // cluster.hosts
        alone = not isinstance(env, HostEnvironment) or env.light or share <= 1
        return presets.coarse(cluster.hosts, workers=0 if alone else min(os.cpu_count() or 1, share))
    if isinstance(env, HostEnvironment):
        alone = env.light or algorithm.num_envs == 1
        return presets.multi_learner(1, workers=0 if alone else min(os.cpu_count() or 1, algorithm.num_envs))
    shards = max(n for n in range(1, jax.device_count() + 1) if algorithm.num_envs % n == 0)
    return presets.anakin(shards)
