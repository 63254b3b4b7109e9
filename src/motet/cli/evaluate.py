"""`motet evaluate`."""

from __future__ import annotations

import sys

from motet.errors import BadOption

ABOUT = "Play episodes with a trained policy, without exploration. Example: motet evaluate runs/first --episodes 16"


def evaluate(args: list[str]) -> int:
    """Play episodes with a trained policy."""
    from motet.cli.options import EvaluateOptions
    from motet.cli.parsing import parse

    options = parse("evaluate", args, ABOUT, run=EvaluateOptions)
    from motet.evaluation import evaluate
    from motet.opened import open_run

    if options.run.episodes < 1:
        raise BadOption(f"--episodes must be at least 1, got {options.run.episodes}")
    run = options.run
    opened = open_run(run.run_dir, "evaluate", trusted=run.trust)
    policy = opened.policy(run.checkpoint, trusted=run.trust)
    env = opened.environment(run.strict)
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
