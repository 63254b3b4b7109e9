"""`motet train`."""

from __future__ import annotations

import re
import shutil
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.cli.arguments import busy, parse_task
from motet.cli.streams import whoever_reads
from motet.errors import BadOption, Interrupted, MotetError

if TYPE_CHECKING:
    from motet.plan.plan import Plan
    from motet.result import Result
    from motet.runs.evaluate import Evaluation

EVALUATION_FAILED = 4
"""The exit code of a run whose training went well, but not the evaluation after it."""


def train(args: list[str]) -> int:
    """Train, evaluate, and say what came of it."""
    from motet.cli.options import RunOptions, Task
    from motet.cli.plan_options import chosen_plan, plan_options
    from motet.cli.repeated import Repeated

    repeated = Repeated.asked_for(args)
    parts = {"task": Task, "run": RunOptions, "plan": plan_options()}
    options = parse_task("train", "Train an algorithm on an environment.", args, repeated, **parts)
    run = options.run
    if run.devices is not None:
        make_devices(run.devices)
    if run.evaluate_episodes < 0:
        raise BadOption(f"--evaluate-episodes must be at least 0, got {run.evaluate_episodes}")
    env, plan = options.task.make(run.strict), chosen_plan(options.plan) or (repeated.plan() if repeated else None)
    return conclude(run, _train(options, env, plan, args), env, options.task.env, run.seed)


def conclude(run: Any, result: Result, env: Any, env_name: str, seed: int) -> int:
    """Evaluate what was trained, and say what came of it -> the exit code."""
    from motet.cli.report import summary
    from motet.envs import registry

    outside, failure = result.outside, None
    if run.evaluate_episodes:
        try:
            with busy("evaluating"):
                score = _evaluate(run, result, env, seed)
            with whoever_reads():
                print(f"evaluation  greedy policy: {score}")
            outside += score.outside
        except BaseException as error:  # whatever it is: what training gave is there, and is said first
            failure = error
    with whoever_reads():
        if env_name in registry.TWINS:
            print(f"environment {env_name} is motet's own, in JAX; gymnasium/{env_name} is Gymnasium's")
        print(summary(result, run.total_timesteps or result.steps, outside))
    return 0 if failure is None else _evaluation_failed(failure, result)


def _evaluate(run: Any, result: Result, env: Any, seed: int) -> Evaluation:
    """With as many workers as the training had, and the same limits."""
    from motet.evaluation import evaluate

    return evaluate(
        result.policy,
        env,
        episodes=run.evaluate_episodes,
        seed=seed,
        workers=max(fragment.workers for fragment in result.plan.fragments.values()),
        step_timeout=run.step_timeout,
        restarts=run.restarts,
    )


def _evaluation_failed(error: BaseException, result: Result) -> int:
    """Say that the training is over and well, and that what came after it is not."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if not isinstance(error, MotetError):
        traceback.print_exception(error)
    reason = error if isinstance(error, MotetError) else f"{type(error).__name__} (see above)"
    print(
        f"motet: The training is over and its policy is in {result.run_dir}, but the evaluation failed: {reason}\n"
        f"`motet evaluate {result.run_dir}` tries again.",
        file=sys.stderr,
    )
    return EVALUATION_FAILED


def _train(options: Any, env: Any, plan: Plan | None, args: Sequence[str]) -> Result:
    """Train in a folder of its own; nothing is left of a run that was interrupted before it had begun."""
    from motet import training
    from motet.runs import folder
    from motet.runs.display import live_display

    run = options.run
    task = re.sub(r"[^\w.-]+", "-", options.task.env).strip("-.")
    name = f"{type(options.algorithm).__name__.lower()}-{task}"
    was_there = run.run_dir is not None and run.run_dir.exists()
    run_dir = run.run_dir or folder.fresh(Path("runs"), name)
    try:
        return training.train(
            options.algorithm,
            env,
            plan,
            total_timesteps=run.total_timesteps,
            seed=run.seed,
            run_dir=run_dir,
            progress=False,
            callbacks=[live_display()],
            eval_steps=run.eval_steps,
            eval_seconds=run.eval_seconds,
            eval_episodes=run.eval_episodes,
            eval_explore=run.eval_explore,
            stop_when=run.stop_when,
            profile=None if run.profile else False,
            max_lag=run.max_lag,
            track=run.track,
            command=["motet", "train", *args],
            mode="serial" if run.serial else "threads",
            timeout=run.timeout,
            step_timeout=run.step_timeout,
            restarts=run.restarts,
            cluster=run.cluster(),
            **run.checkpoints(),
        )
    except Interrupted:
        raise
    except BaseException as error:
        metrics = run_dir / "metrics.jsonl"
        interrupted = isinstance(error, KeyboardInterrupt)
        if interrupted and metrics.is_file() and metrics.stat().st_size:
            print(f"What was measured until now is in {run_dir}.", file=sys.stderr)
        elif interrupted and not was_there:
            shutil.rmtree(run_dir, ignore_errors=True)
        with suppress(OSError):  # they go only if they are empty
            if not was_there:
                run_dir.rmdir()
        with suppress(OSError):
            if run.run_dir is None:
                run_dir.parent.rmdir()
        raise


def make_devices(count: int) -> None:
    from motet.engine.run import virtual_devices

    if count < 1:
        raise BadOption(f"--devices must be at least 1, got {count}")
    virtual_devices(count)
