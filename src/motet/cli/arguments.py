"""What the commands share: ALGORITHM and ENV, and where they write."""

from __future__ import annotations

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
    return parse(f"{command} {name}", rest, about, **parts, algorithm=algorithms.find(name))


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
