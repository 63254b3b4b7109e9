"""What the commands share: ALGORITHM and ENV, and where they write."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import BadOption

if TYPE_CHECKING:
    from motet.cli.options import Task
    from motet.cli.repeated import Repeated
    from motet.flow.algorithm import Algorithm
    from motet.flow.graph import Graph
    from motet.plan.plan import Plan

HELP = ("-h", "--help")


def parse_task(command: str, about: str, args: list[str], repeated: Repeated | None = None, **parts: Any) -> Any:
    """Read ALGORITHM, ENV and all options; without an algorithm, explain. What is `repeated` need not be said."""
    from motet import algorithms
    from motet.cli.parsing import parse

    known = ", ".join(algorithms.ALGORITHMS)
    if not args or args[0] in HELP:
        about = f"{about} ALGORITHM is one of {known}; name it to see its own options too: motet {command} ppo --help."
        parse(f"{command} ALGORITHM", args or ["--help"], about, **parts)
    if repeated is not None:
        args = repeated.with_algorithm(args)
    if args[0].startswith("-"):
        raise BadOption(f"The algorithm comes first: motet {command} ALGORITHM ENV [options], got {args[0]!r}.")
    name, *rest = args
    _recognise_swapped(command, name, rest)
    kind = algorithms.find(name)
    example = EXAMPLES.get(command.partition(" ")[0], "")
    about = f"{about} Example: {example}" if example else about
    # The algorithm's own options come first: they are what its name was given for.
    rest = spelt_out(renamed(rest, kind), kind)
    read = partial(parse, f"{command} {name}", rest, about, task=parts.pop("task"), algorithm=kind, **parts)
    return read() if repeated is None else repeated.read(rest, read)


EXAMPLES = {
    "train": "motet train ppo CartPole-v1 --total-timesteps 500_000",
    "graph": "motet graph ppo CartPole-v1 --format svg --output loop.svg",
    "plan": "motet plan ppo CartPole-v1 --preset coarse --actors 2 --lag 1",
    "simulate": "motet simulate ppo CartPole-v1 --machine tpu-v3-pod --sweep devices=16..2048",
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
    "--normalize-observations": "normalize_observation",
    "--normalize-obs": "normalize_observation",
    "--norm-obs": "normalize_observation",
    "--norm-reward": "normalize_reward",
}
"""What other libraries call some options -> our names."""

NORMALISE = ("--normalize-observation", "--normalize-observations", "--norm-obs", "--normalize-obs")
NORMALISING = (
    "Normalising observations is part of what is learned: ppo and batch_ppo do it (--normalize-observation) and keep "
    "its statistics with the policy. With other algorithms, let the environment scale what it shows: a function of "
    "your own (my_envs.py:make) that lays Gymnasium's RescaleObservation around it, or "
    "motet.envs.wrappers.RangeNormalize if it is written in JAX."
)
"""Why only some algorithms have it, and what to do with the others."""


def renamed(args: list[str], algorithm: type) -> list[str]:
    """The same arguments; those that other libraries know by another name are refused with ours."""
    ours = {field.name for field in dataclasses.fields(algorithm)} | {"total_timesteps"}
    for arg in args:
        flag = arg.partition("=")[0].replace("_", "-")
        if flag in NORMALISE and "normalize_observation" not in ours:
            raise BadOption(f"There is no option {flag} of {algorithm.__name__}. {NORMALISING}")
        meant = ELSEWHERE.get(flag)
        if meant in ours and flag.removeprefix("--").replace("-", "_") not in ours:
            raise BadOption(f"There is no option {flag}. Did you mean --{meant.replace('_', '-')}?")
    return args


def spelt_out(args: list[str], algorithm: type) -> list[str]:
    """The same arguments, with their values for options that may be left open: a mere --normalize-reward says True, and
    --no-normalize-reward False, as they do for options that have two values."""
    open_ones = {f"--{each.name.replace('_', '-')}" for each in dataclasses.fields(algorithm) if _may_be_open(each)}
    out = []
    for arg, following in zip(args, [*args, ""][1:], strict=True):
        flag = arg.replace("_", "-")
        if flag in open_ones and following not in ("True", "False", "None"):
            out += [flag, "True"]
        elif flag.startswith("--no-") and f"--{flag[5:]}" in open_ones:
            out += [f"--{flag[5:]}", "False"]
        else:
            out.append(arg)
    return out


def _may_be_open(each: dataclasses.Field[Any]) -> bool:
    return each.type in ("bool | None", bool | None)


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
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def busy(what: str) -> AbstractContextManager[Any]:
    """Say on a terminal what is being waited for."""
    from rich.console import Console

    console = Console()
    return console.status(what) if console.is_terminal else nullcontext()
