"""`motet evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from motet.errors import BadOption


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy."""
    from motet.cli.options import EvaluateOptions, parse

    options = parse("evaluate", args, "Play episodes with a trained policy, without exploration.", run=EvaluateOptions)
    from motet import algorithms
    from motet.runs.evaluate import evaluate
    from motet.runs.policy import Policy

    if options.run.episodes < 1:
        raise BadOption(f"--episodes must be at least 1, got {options.run.episodes}")
    config = _config(options.run.run_dir)
    policy = Policy.load(options.run.run_dir, algorithms.find(config["algorithm"]))
    env = _environment(config["environment"], options.run.strict)
    run = options.run
    score = evaluate(
        policy,
        env,
        episodes=run.episodes,
        seed=run.seed,
        workers=run.workers,
        step_timeout=run.step_timeout,
        restarts=run.restarts,
    )
    print(score)
    if score.outside:
        print(f"warning: {score.outside} (--strict makes it an error)", file=sys.stderr)
    return 0


def _config(run_dir: Path) -> dict[str, Any]:
    """What a run's folder says of itself."""
    from motet.runs.reading import read_json

    file = run_dir / "config.json"
    if not file.is_file():
        raise BadOption(f"{run_dir} is no run's folder: it holds no config.json. `motet train` makes such folders.")
    config = read_json(file)
    names = ("algorithm", "environment")
    if not isinstance(config, dict) or not all(isinstance(config.get(name), str) for name in names):
        raise BadOption(f"{file} is damaged: it names no algorithm and environment.")
    return config


def _environment(name: str, strict: bool) -> Any:
    """An environment by its id, or by the name that it has for itself."""
    from motet.envs import registry

    ids = {place.partition(":")[2]: env_id for env_id, place in registry.ENVIRONMENTS.items()}
    return registry.make(ids.get(name, name), check_bounds=strict)
