"""`motet evaluate`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import BadOption

if TYPE_CHECKING:
    from motet.runs.folder import Names


ABOUT = "Play episodes with a trained policy, without exploration. Example: motet evaluate runs/first --episodes 16"


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy."""
    from motet.cli.options import EvaluateOptions, parse

    options = parse("evaluate", args, ABOUT, run=EvaluateOptions)
    from motet import algorithms
    from motet.runs.evaluate import evaluate
    from motet.runs.policy import Policy

    if options.run.episodes < 1:
        raise BadOption(f"--episodes must be at least 1, got {options.run.episodes}")
    names = _names(options.run.run_dir, options.run.trust)
    policy = Policy.load(options.run.run_dir, algorithms.find(names.algorithm), trust=options.run.trust)
    env = _environment(names, options.run.strict)
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


def _names(run_dir: Path, trusted: bool) -> Names:
    """What a run's folder says of itself. Names of modules are only believed if this user wrote or trusts them."""
    from motet.runs import trust
    from motet.runs.folder import Names
    from motet.runs.options import code_names
    from motet.runs.reading import read_json

    file = run_dir / "config.json"
    if not file.is_file():
        raise BadOption(f"{run_dir} is no run's folder: it holds no config.json. `motet train` makes such folders.")
    config = read_json(file)
    config = config if isinstance(config, dict) else {}
    algorithm, environment = config.get("algorithm"), config.get("environment")
    options = config.get("environment_options", {})
    if not isinstance(algorithm, str) or not isinstance(environment, str) or not isinstance(options, dict):
        raise BadOption(f"{file} is damaged: it names no algorithm and environment.")
    names = Names(algorithm, environment, options, tuple(code_names(config.get("options"))))
    trust.demand(f"evaluate {run_dir}", names.all, asdict(names), config.get("signature"), trusted)
    return names


def _environment(names: Names, strict: bool) -> Any:
    """An environment by its id, or by the name that it has for itself."""
    from motet.envs import registry

    ids = {place.partition(":")[2]: env_id for env_id, place in registry.ENVIRONMENTS.items()}
    name = names.environment
    return registry.make(ids.get(name, name), check_bounds=strict, **names.environment_options)
