"""The command line. Nothing heavy is imported before a command needs it: `motet --help` answers at once."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from motet.errors import BadOption, BadPlan, Diverged, MotetError, UnknownName

if TYPE_CHECKING:
    from motet.flow.algorithm import Algorithm
    from motet.flow.graph import Graph
    from motet.plan.plan import Plan
    from motet.training import Result

USAGE = """\
motet trains reinforcement-learning agents: one loop, written once, run as a plan says.

usage: motet COMMAND [...]

  train ALGORITHM ENV        train an algorithm on an environment
  evaluate RUN_DIR           play episodes with a trained policy
  graph ALGORITHM ENV        show an algorithm's loop: as text, DOT, a picture or JSON
  plan ALGORITHM ENV         show a plan: who runs what, and what goes over each link
  check-plan FILE            check a plan; with ALGORITHM ENV, whether it fits them
  check-env ENV              play an environment and say whether it keeps its contract
  algorithms                 list the algorithms
  envs                       list the environments

`motet COMMAND --help` explains a command, `motet train ppo --help` an algorithm's options too.

example: motet train ppo CartPole-v1 --total-timesteps 500_000
"""
HELP = ("-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> its exit code: 0 fine, 1 a bad plan, 2 a mistake, 3 diverged, 130 interrupted."""
    try:
        with _insistent_interrupts():
            code = _dispatch(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return code
    except SystemExit as stop:  # tyro has said why
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        code = _say("Interrupted.", 130)
        if argv is None:
            _leave(code)
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
    return COMMANDS[name](rest)


@contextmanager
def _insistent_interrupts() -> Iterator[None]:
    """Raise Ctrl-C once more where it was lost: JAX has a callback in garbage collection, whose errors Python drops."""
    before = sys.unraisablehook

    def again(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            # Not at once: that would be in this very hook.
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        else:
            before(lost)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _leave(code: int) -> NoReturn:
    """End the process here: after an interrupt inside XLA's compiler, Python's own shutdown crashes in jaxlib."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _say(message: str, code: int) -> int:
    print(f"motet: {message}", file=sys.stderr)
    return code


# The commands.


def train(args: list[str]) -> int:
    """Train, evaluate, and say what came of it."""
    from motet.cli_options import RunOptions, Task, chosen_plan, plan_options

    options = _parse(
        "train", "Train an algorithm on an environment.", args, task=Task, run=RunOptions, plan=plan_options()
    )
    run = options.run
    if run.devices is not None:
        _make_devices(run.devices)
    if run.evaluate_episodes < 0:
        raise BadOption(f"--evaluate-episodes must be at least 0, got {run.evaluate_episodes}")
    from motet import envs
    from motet.cli_report import summary
    from motet.envs import registry
    from motet.runs.evaluate import evaluate

    env, plan = envs.make(options.task.env), chosen_plan(options.plan)
    result = _train(options, env, plan)
    if run.evaluate_episodes:
        with _busy("evaluating"):
            score = evaluate(result.policy, env, episodes=run.evaluate_episodes, seed=run.seed)
        print(f"evaluation  greedy policy: {score}")
    if options.task.env in registry.TWINS:
        print(f"environment {options.task.env} is motet's own, in JAX; gymnasium/{options.task.env} is Gymnasium's")
    print(summary(result, run.total_timesteps))
    return 0


def _train(options: Any, env: Any, plan: Plan | None) -> Result:
    """Train in a folder of its own; nothing is left of a run that was interrupted before it had begun."""
    from motet import training
    from motet.runs import folder
    from motet.runs.progress import live_display

    run = options.run
    name = f"{type(options.algorithm).__name__.lower()}-{options.task.env.replace('/', '-')}"
    run_dir = run.run_dir or folder.fresh(Path("runs"), name)
    was_there = run_dir.exists()
    display = live_display()
    try:
        return training.train(
            options.algorithm,
            env,
            plan,
            total_timesteps=run.total_timesteps,
            seed=run.seed,
            run_dir=run_dir,
            display=display,
            mode="serial" if run.serial else "threads",
            timeout=run.timeout,
        )
    except KeyboardInterrupt:
        display.end()
        metrics = run_dir / "metrics.jsonl"
        if metrics.is_file() and metrics.stat().st_size:
            print(f"What was measured until now is in {run_dir}.", file=sys.stderr)
        elif not was_there:
            shutil.rmtree(run_dir, ignore_errors=True)
            if run.run_dir is None:
                with suppress(OSError):  # there may be other runs in it
                    run_dir.parent.rmdir()
        raise


def _busy(what: str) -> AbstractContextManager[Any]:
    """Say on a terminal what is being waited for."""
    from rich.console import Console

    console = Console()
    return console.status(what) if console.is_terminal else nullcontext()


def _make_devices(count: int) -> None:
    from motet.engine.run import virtual_devices

    if count < 1:
        raise BadOption(f"--devices must be at least 1, got {count}")
    virtual_devices(count)


def graph(args: list[str]) -> int:
    """Show an algorithm's loop."""
    from motet.cli_options import GraphOptions, Task

    options = _parse("graph", "Show an algorithm's loop as a graph.", args, task=Task, show=GraphOptions)
    from motet.flow import show

    forms: dict[str, Callable[[Graph], str]] = {
        "text": show.text, "dot": show.dot, "svg": show.svg, "json": show.to_json
    }  # fmt: skip
    traced = _trace(options.algorithm, options.task.env, options.show.total_timesteps)
    _write(forms[options.show.format](traced), options.show.output)
    return 0


def plan(args: list[str]) -> int:
    """Show a plan."""
    from motet.cli_options import ShowPlanOptions, Task, chosen_plan, plan_options

    about = "Show a plan: its fragments, their programs, and the traffic on its links. Nothing is run."
    options = _parse("plan", about, args, task=Task, plan=plan_options(), show=ShowPlanOptions)
    from motet.plan import show
    from motet.plan.check import check
    from motet.plan.presets import PRESETS

    chosen = chosen_plan(options.plan)
    if chosen is None:
        raise BadOption(f"Name a plan: --preset NAME ({', '.join(PRESETS)}) or --plan FILE.")
    traced = _trace(options.algorithm, options.task.env, options.show.total_timesteps, chosen)
    check(traced, chosen)
    _write(chosen.to_json() if options.show.json else show.text(traced, chosen), options.show.output)
    return 0


def check_plan(args: list[str]) -> int:
    """Check a plan's form, and whether it fits a graph."""
    if not args or args[0] in HELP:
        print("usage: motet check-plan FILE [ALGORITHM ENV [the algorithm's options]]\n")
        print("Check a plan's JSON form; with an algorithm and an environment, whether it can run them.")
        return 0 if args else 2
    file, *rest = args
    from motet.cli_options import Task, read_plan
    from motet.plan.check import numbers, violations

    try:
        found = read_plan(Path(file))
    except BadPlan as error:
        return _verdict(error.violations)
    if not rest:
        return _verdict(list(numbers(found)))
    options = _parse(f"check-plan {file}", "Check a plan.", rest, task=Task)
    return _verdict(violations(_trace(options.algorithm, options.task.env, plan=found), found))


def _verdict(found: Sequence[str]) -> int:
    print("\n".join(found) or "ok")
    return 1 if found else 0


def check_env(args: list[str]) -> int:
    """Play an environment at random, and say what breaks its contract."""
    from motet.cli_options import CheckEnvOptions, Task, parse

    about = "Play an environment with random actions and say whether it keeps its contract."
    options = parse("check-env", args or ["--help"], about, task=Task, play=CheckEnvOptions)
    from motet import envs
    from motet.envs.examine import examine, lines

    if options.play.steps < 1:
        raise BadOption(f"--steps must be at least 1, got {options.play.steps}")
    env = envs.make(options.task.env)
    with _busy("playing"):
        seen = examine(env, steps=options.play.steps, seed=options.play.seed)
    print("\n".join(lines(env, seen)))
    return 1 if seen.findings else 0


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy."""
    from motet.cli_options import EvaluateOptions, parse

    options = parse("evaluate", args, "Play episodes with a trained policy, without exploration.", run=EvaluateOptions)
    from motet import algorithms
    from motet.runs.evaluate import evaluate
    from motet.runs.policy import Policy

    if options.run.episodes < 1:
        raise BadOption(f"--episodes must be at least 1, got {options.run.episodes}")
    config = _config(options.run.run_dir)
    policy = Policy.load(options.run.run_dir, algorithms.find(config["algorithm"]))
    env = _environment(config["environment"])
    print(evaluate(policy, env, episodes=options.run.episodes, seed=options.run.seed))
    return 0


def list_algorithms(args: list[str]) -> int:
    from motet import algorithms
    from motet.cli_report import listing, short_kinds

    kinds = {name: algorithms.find(name) for name in algorithms.ALGORITHMS}
    rows = [
        (
            name,
            short_kinds(kind.action_spaces),
            "any" if kind.max_lag is None else kind.max_lag,
        )
        for name, kind in kinds.items()
    ]
    header = ("algorithm", "actions", "largest lag")
    print(listing(header, rows, "<<>", [kind.__doc__ or "" for kind in kinds.values()]))
    return 0


def list_envs(args: list[str]) -> int:
    from motet.cli_report import listing, short_space
    from motet.envs import describe

    found = describe()
    rows = [
        (each.id, short_space(each.observation_space), short_space(each.action_space), each.time_limit or "none")
        for each in found
    ]
    header = ("environment", "observations", "actions", "time limit")
    print(listing(header, rows, "<<<>", [each.summary for each in found]))
    print(f"\n{_families()}")
    return 0


def _families() -> str:
    """The prefixes of other libraries, and what to do where one is missing."""
    from motet.cli_report import listing
    from motet.envs.families import FAMILIES

    rows = [
        (f"{each.prefix}/ID", each.example, "yes" if each.installed else each.install) for each in FAMILIES.values()
    ]
    notes = [each.summary for each in FAMILIES.values()]
    return listing(("other libraries", "for example", "installed"), rows, "<<<", notes)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "graph": graph,
    "plan": plan,
    "check-plan": check_plan,
    "check-env": check_env,
    "algorithms": list_algorithms,
    "envs": list_envs,
}


# What they share.


def _parse(command: str, about: str, args: list[str], **parts: type) -> Any:
    """Read ALGORITHM, ENV and all options; without an algorithm, explain."""
    from motet import algorithms
    from motet.cli_options import parse

    known = ", ".join(algorithms.ALGORITHMS)
    if not args or args[0] in HELP:
        about = f"{about} ALGORITHM is one of {known}; name it to see its own options too: motet {command} ppo --help."
        parse(f"{command} ALGORITHM", args or ["--help"], about, **parts)
    if args[0].startswith("-"):
        raise BadOption(f"The algorithm comes first: motet {command} ALGORITHM ENV [options], got {args[0]!r}.")
    name, *rest = args
    return parse(f"{command} {name}", rest, about, **parts, algorithm=algorithms.find(name))


def _trace(algorithm: Algorithm, env: str, total_timesteps: int = 10**9, plan: Plan | None = None) -> Graph:
    from motet import envs
    from motet.flow.trace import trace

    cuts = plan.cuts() if plan else ()
    return trace(algorithm, envs.make(env), total_timesteps=total_timesteps, cuts=cuts)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        print(text.rstrip("\n"))
    else:
        output.write_text(text.rstrip("\n") + "\n")


def _config(run_dir: Path) -> dict[str, Any]:
    """What a run's folder says of itself."""
    import json

    file = run_dir / "config.json"
    if not file.is_file():
        raise BadOption(f"{run_dir} is no run's folder: it holds no config.json. `motet train` makes such folders.")
    try:
        config = json.loads(file.read_text())
        return {name: config[name] for name in ("algorithm", "environment")}
    except (ValueError, KeyError, TypeError):
        raise BadOption(f"{file} is damaged: it names no algorithm and environment.") from None


def _environment(name: str) -> Any:
    """An environment by its id, or by the name that it has for itself."""
    from motet.envs import registry

    ids = {place.partition(":")[2]: env_id for env_id, place in registry.ENVIRONMENTS.items()}
    return registry.make(ids.get(name, name))
