"""`motet check-plan`, `check-env`, `check-algorithm`: is what somebody wrote right? Exit code 1 says that it is not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from motet.cli.arguments import HELP, busy, parse_task, traced
from motet.errors import BadOption


def check_plan(args: list[str]) -> int:
    """Check a plan's form, and whether it fits a graph."""
    if not args or args[0] in HELP:
        print("usage: motet check-plan FILE [ALGORITHM ENV [the algorithm's options]]\n")
        print("Check a plan's JSON form; with an algorithm and an environment, whether it can run them.")
        return 0 if args else 2
    file, *rest = args
    from motet.cli.options import Task
    from motet.cli.plan_options import plan_text
    from motet.plan.check import numbers, violations
    from motet.plan.plan import Plan

    found, problems = Plan.read(plan_text(Path(file)))
    if found is None:
        return _verdict(problems)
    if not rest:
        return _verdict([*problems, *numbers(found)])
    options = parse_task(f"check-plan {file}", "Check a plan.", rest, task=Task)
    return _verdict([*problems, *violations(traced(options.algorithm, options.task, plan=found), found)])


def _verdict(found: Sequence[str]) -> int:
    print("\n".join(found) or "ok")
    return 1 if found else 0


EXAMPLE = "motet check-env my_file.py:MyEnv --env-kwargs '{\"size\": 3}'"


def check_env(args: list[str]) -> int:
    """Play an environment at random, and say what breaks its contract."""
    from motet.cli.options import CheckEnvOptions, Task
    from motet.cli.parsing import parse

    about = "Play an environment with random actions and say whether it keeps its contract. Example: " + EXAMPLE
    options = parse("check-env", args or ["--help"], about, task=Task, play=CheckEnvOptions)
    from motet.envs.examine import examine, lines

    if options.play.steps < 1:
        raise BadOption(f"--steps must be at least 1, got {options.play.steps}")
    env = options.task.make()
    with busy("playing"):
        seen = examine(env, steps=options.play.steps, seed=options.play.seed, strict=options.play.strict)
    print("\n".join(lines(env, seen)))
    return 1 if seen.findings else 0


def check_algorithm(args: list[str]) -> int:
    """Run an algorithm whole and in pieces, and say which method breaks which rule."""
    from motet.cli.options import CheckAlgorithmOptions, Task

    about = "Run an algorithm whole and in pieces, in double precision, and say which method breaks which rule."
    options = parse_task("check-algorithm", about, args, task=Task, check=CheckAlgorithmOptions)
    from motet.engine.run import virtual_devices
    from motet.verify.algorithm import check_algorithm

    with suppress(RuntimeError):  # JAX was used before: there are the devices that there are
        virtual_devices(2)
    env, check = options.task.make(), options.check
    with busy("running it whole and in pieces"):
        report = check_algorithm(options.algorithm, env, iterations=check.iterations, seed=check.seed)
    print(report)
    return 0 if report.ok else 1
