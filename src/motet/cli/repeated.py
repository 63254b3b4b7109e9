"""`motet train --config`: what a configuration says is what the command line says, unless that says otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.cli.options import RunOptions, Task
from motet.cli.plan_options import plan_options
from motet.envs.wrapping import WRAPPERS
from motet.errors import BadOption
from motet.named import everywhere

if TYPE_CHECKING:
    from motet.plan.plan import Plan
    from motet.repeating import Configuration

EXCLUDING = (("checkpoint_seconds", "checkpoint_steps"), ("eval_seconds", "eval_steps"))
"""Of which one is given: whoever says one on the command line means not the other."""


@dataclass(frozen=True)
class Repeated:
    """A configuration that a command line asks for."""

    config: Configuration

    @classmethod
    def asked_for(cls, args: Sequence[str]) -> Repeated | None:
        """That of `--config`, if it is among the arguments."""
        source = None
        for arg, following in zip(args, [*args, ""][1:], strict=True):
            if arg == "--config":
                source = following
            elif arg.startswith("--config="):
                source = arg.partition("=")[2]
        if source is None or {"-h", "--help"} & set(args):
            return None
        if not source or source.startswith("-"):
            raise BadOption("--config needs a run or a file, as in motet train --config runs/first")
        from motet.repeating import read_configuration

        return cls(read_configuration(Path(source), trusted="--trust" in args))

    def with_algorithm(self, args: list[str]) -> list[str]:
        """The arguments with the algorithm first. Another one than the configuration's could not use its options."""
        from motet import algorithms

        mine = self.config.opened.names.algorithm
        if args[0].startswith("-"):
            return [mine, *args]
        if algorithms.find(args[0]) is not algorithms.find(mine):
            raise BadOption(
                f"{self.config.opened.file} is a configuration of {mine}, and not of {args[0]}: leave ALGORITHM out, "
                "or --config."
            )
        return args

    def read(self, args: Sequence[str], parse: Callable[..., Any]) -> Any:
        """Options as the configuration has them, but for what `args` say. The options of an environment are those of
        that environment alone."""
        said = {arg.partition("=")[0].removeprefix("--").replace("-", "_") for arg in args if arg.startswith("--")}
        opened = self.config.opened
        usual = {
            "task": self._task(),
            "algorithm": opened.algorithm(but=said),
            "run": self._run(said),
            "plan": plan_options()(),
        }
        options = parse(usual=usual)
        if everywhere(options.task.env) != opened.environment_id:
            options = parse(usual={**usual, "task": Task(env=options.task.env)})
        return options

    def plan(self) -> Plan | None:
        return self.config.plan()

    def _task(self) -> Task:
        opened = self.config.opened
        given = dict(opened.names.environment_options)
        wrappers = {name: given.pop(name) for name in WRAPPERS if name in given}
        return Task(env=opened.environment_id, env_kwargs=json.dumps(given) if given else None, **wrappers)

    def _run(self, said: set[str]) -> RunOptions:
        run = dict(self.config.run)
        for pair in EXCLUDING:
            if said & set(pair):
                run = {name: value for name, value in run.items() if name not in pair}
        numbers = {
            "seed": self.config.number("seed"),
            "total_timesteps": self.config.number("steps"),
            "devices": self.config.number("devices") if (self.config.number("devices") or 1) > 1 else None,
        }
        return RunOptions(**{name: value for name, value in numbers.items() if value is not None}, **run)
