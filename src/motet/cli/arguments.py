"""What the commands share: ALGORITHM and ENV, and where they write."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import BadOption

if TYPE_CHECKING:
    from motet.cli.options import Task
    from motet.flow.algorithm import Algorithm
    from motet.flow.graph import Graph
    from motet.plan.plan import Plan

HELP = ("-h", "--help")


def parse_task(command: str, about: str, args: list[str], **parts: type) -> Any:
    """Read ALGORITHM, ENV and all options; without an algorithm, explain."""
    from motet import algorithms
    from motet.cli.options import parse

    known = ", ".join(algorithms.ALGORITHMS)
    if not args or args[0] in HELP:
        about = f"{about} ALGORITHM is one of {known}; name it to see its own options too: motet {command} ppo --help."
        parse(f"{command} ALGORITHM", args or ["--help"], about, **parts)
    if args[0].startswith("-"):
        raise BadOption(f"The algorithm comes first: motet {command} ALGORITHM ENV [options], got {args[0]!r}.")
    name, *rest = args
    _recognise_swapped(command, name, rest)
    kind = algorithms.find(name)
    example = EXAMPLES.get(command.partition(" ")[0], "")
    about = f"{about} Example: {example}" if example else about
    # The algorithm's own options come first: they are what its name was given for.
    return parse(f"{command} {name}", renamed(rest, kind), about, task=parts.pop("task"), algorithm=kind, **parts)


EXAMPLES = {
    "train": "motet train ppo CartPole-v1 --total-timesteps 500_000",
    "graph": "motet graph ppo CartPole-v1 --format svg --output loop.svg",
    "plan": "motet plan ppo CartPole-v1 --preset coarse --actors 2 --lag 1",
    "check-plan": "motet check-plan plan.json ppo CartPole-v1",
}

ELSEWHERE = {
    "--gamma": "discount",
    "--lr": "learning_rate",
    "--ent-coef": "entropy_weight",
    "--vf-coef": "value_weight",
    "--n-steps": "num_steps",
    "--n-envs": "num_envs",
    "--n-epochs": "update_epochs",
    "--clip-range": "clip",
    "--clip-coef": "clip",
    "--max-grad-norm": "max_gradient_norm",
    "--lam": "gae_lambda",
    "--lambda": "gae_lambda",
    "--buffer-capacity": "buffer_size",
    "--tau": "target_rate",
    "--timesteps": "total_timesteps",
    "--steps": "total_timesteps",
    "--num-timesteps": "total_timesteps",
    "--net-arch": "hidden",
}
"""What other libraries call some options -> our names."""


def renamed(args: list[str], algorithm: type) -> list[str]:
    """The same arguments; those that other libraries know by another name are refused with ours."""
    ours = {field.name for field in dataclasses.fields(algorithm)} | {"total_timesteps"}
    for arg in args:
        flag = arg.partition("=")[0].replace("_", "-")
        meant = ELSEWHERE.get(flag)
        if meant in ours and flag.removeprefix("--").replace("-", "_") not in ours:
            raise BadOption(f"There is no option {flag}. Did you mean --{meant.replace('_', '-')}?")
    return args


def _recognise_swapped(command: str, name: str, rest: list[str]) -> None:
    """An environment first and an algorithm second."""
    from motet import algorithms

    known = {*algorithms.ALGORITHMS, *(each.lower() for each in algorithms.ALGORITHMS.values())}
    if rest and name.lower() not in known and ":" not in name and rest[0].lower() in known:
        line = " ".join(["motet", command, rest[0], name, *rest[1:]])
        raise BadOption(f"The algorithm comes before the environment: {line}")


def traced(algorithm: Algorithm, task: Task, total_timesteps: int = 10**9, plan: Plan | None = None) -> Graph:
    from motet.flow.trace import trace

    cuts = plan.cuts() if plan else ()
    return trace(algorithm, task.make(), total_timesteps=total_timesteps, cuts=cuts)


def write(text: str, output: Path | None) -> None:
    if output is None:
        print(text.rstrip("\n"))
    else:
        output.write_text(text.rstrip("\n") + "\n")


def busy(what: str) -> AbstractContextManager[Any]:
    """Say on a terminal what is being waited for."""
    from rich.console import Console

    console = Console()
    return console.status(what) if console.is_terminal else nullcontext()
