"""The command line. Nothing heavy is imported before a command needs it: `motet --help` answers at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from motet.cli.arguments import HELP
from motet.cli.interrupts import insistent_interrupts, leave
from motet.cli.streams import nobody_reads, open_closed_streams
from motet.errors import Diverged, Interrupted, MotetError, UnknownName

USAGE = """\
motet trains reinforcement-learning agents: one loop, written once, run as a plan says.

usage: motet COMMAND [...]

  train ALGORITHM ENV        train an algorithm on an environment
  resume RUN                 go on with a run that was stopped, from its last checkpoint
  evaluate RUN               play episodes with a trained policy
  record RUN                 film episodes of a trained policy
  plot RUN...                draw the curves of runs, several seeds as one
  report RUN                 make a page of HTML of a run
  export RUN                 write a trained policy for others to use
  runs                       list runs and their states; `latest` stands for the last one wherever a run is named
  graph ALGORITHM ENV        show an algorithm's loop: as text, DOT, a picture or JSON
  plan ALGORITHM ENV         show a plan: who runs what, and what goes over each link; or choose the best one
  simulate ALGORITHM ENV     how plans would do on more and more devices of a machine: a table and a picture
  calibrate RUN              correct what plans are chosen by with what a run measured
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
    "resume": "resume:resume",
    "evaluate": "evaluate:evaluate",
    "record": "record:record",
    "plot": "plot:plot",
    "report": "page:report",
    "export": "export:export",
    "runs": "runs:runs",
    "graph": "show:graph",
    "plan": "show:plan",
    "simulate": "simulate:simulate",
    "calibrate": "calibrate:calibrate",
    "check-plan": "check:check_plan",
    "check-env": "check:check_env",
    "check-algorithm": "check:check_algorithm",
    "algorithms": "lists:list_algorithms",
    "envs": "lists:list_envs",
}
"""Command -> the module of this folder and the function in it, which takes arguments and returns an exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> its exit code: 0 fine, 1 a check found something, 2 a mistake or a failed run, 3 diverged,
    4 trained but not evaluated, 130 interrupted, 143 terminated."""
    open_closed_streams()
    try:
        with insistent_interrupts():
            code = _dispatch(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return code
    except SystemExit as stop:  # tyro has said why
        return stop.code if isinstance(stop.code, int) else 2
    except Interrupted as stopped:
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one says nothing new
        return _stopped(stopped)
    except KeyboardInterrupt:
        code = _say("Interrupted.", 130)
        if argv is None:
            leave(code)
        return code
    except Diverged as error:
        return _say(str(error), 3)
    except MotetError as error:
        return _say(str(error), 2)
    except BrokenPipeError:  # whoever read has enough
        nobody_reads()
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


def _stopped(stopped: Interrupted) -> int:
    """A run that a signal ended, and that is saved."""
    result = stopped.result
    folder = os.path.relpath(result.run_dir) if result.run_dir.is_relative_to(os.getcwd()) else result.run_dir
    for warning in result.warnings:
        print(f"motet: warning: {warning}", file=sys.stderr)
    return _say(
        f"Stopped after {result.steps:,} steps, and saved. To go on: motet resume {folder}", 128 + stopped.signal
    )


def _say(message: str, code: int) -> int:
    print(f"motet: {message}", file=sys.stderr)
    return code
