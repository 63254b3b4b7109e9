"""The command line. Nothing heavy is imported before a command needs it: `motet --help` answers at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from motet.cli.arguments import HELP
from motet.cli.interrupts import insistent_interrupts, leave
from motet.errors import Diverged, MotetError, UnknownName

USAGE = """\
motet trains reinforcement-learning agents: one loop, written once, run as a plan says.

usage: motet COMMAND [...]

  train ALGORITHM ENV        train an algorithm on an environment
  evaluate RUN_DIR           play episodes with a trained policy
  graph ALGORITHM ENV        show an algorithm's loop: as text, DOT, a picture or JSON
  plan ALGORITHM ENV         show a plan: who runs what, and what goes over each link
  check-plan FILE            check a plan; with ALGORITHM ENV, whether it fits them
  check-env ENV              play an environment and say whether it keeps its contract
  check-algorithm ALGORITHM ENV
                             run an algorithm whole and in pieces: does it keep the rules of batches?
  algorithms                 list the algorithms
  envs                       list the environments

`motet COMMAND --help` explains a command, `motet train ppo --help` an algorithm's options too. ALGORITHM and ENV may be
your own: package.module:Name or folder/file.py:Name.

example: motet train ppo CartPole-v1 --total-timesteps 500_000
"""
COMMANDS = {
    "train": "train:train",
    "evaluate": "evaluate:evaluate",
    "graph": "show:graph",
    "plan": "show:plan",
    "check-plan": "check:check_plan",
    "check-env": "check:check_env",
    "check-algorithm": "check:check_algorithm",
    "algorithms": "lists:list_algorithms",
    "envs": "lists:list_envs",
}
"""Command -> the module of this folder and the function in it, which takes arguments and returns an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> its exit code: 0 fine, 1 a check found something, 2 a mistake or a failed run, 3 diverged,
    4 trained but not evaluated, 130 interrupted."""
    _open_closed_streams()
    try:
        with insistent_interrupts():
            code = _dispatch(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return code
    except SystemExit as stop:  # tyro has said why
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        code = _say("Interrupted.", 130)
        if argv is None:
            leave(code)
        return code
    except Diverged as error:
        return _say(str(error), 3)
    except MotetError as error:
        return _say(str(error), 2)
    except BrokenPipeError:  # whoever read has enough; Python would complain once more when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _say(f"{error.strerror}: {error.filename}", 2)


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in HELP:
        print(USAGE, end="")
        return 0
    if args[0] == "--version":
        print(f"motet {metadata.version('motet')}")
        return 0
    name, *rest = args
    if name not in COMMANDS:
        raise UnknownName("command", name, COMMANDS)
    module, _, function = COMMANDS[name].partition(":")
    return getattr(import_module(f"motet.cli.{module}"), function)(rest)


def _open_closed_streams() -> None:
    """Whoever closed them (`>&-`) wants to see nothing; others expect that they are there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process lives


def _say(message: str, code: int) -> int:
    print(f"motet: {message}", file=sys.stderr)
    return code
