"""`motet export`."""

from __future__ import annotations

from motet.errors import BadOption

ABOUT = (
    "Write a trained policy for others to use, with a card that says what it is. "
    "Example: motet export runs/first --to stablehlo"
)


def export(args: list[str]) -> int:
    """Write a trained policy for others to use."""
    from motet.cli.options import ExportOptions
    from motet.cli.parsing import parse

    run = parse("export", args, ABOUT, run=ExportOptions).run
    from motet.cli.arguments import busy
    from motet.evaluation import evaluate
    from motet.exporting import export
    from motet.opened import open_run
    from motet.runs.card import facts_of

    if run.evaluate_episodes < 0:
        raise BadOption(f"--evaluate-episodes must be at least 0, got {run.evaluate_episodes}")
    opened = open_run(run.run_dir, "export", trusted=run.trust)
    policy = opened.policy(run.checkpoint, trusted=run.trust)
    score = None
    if run.evaluate_episodes:
        with busy("evaluating"):
            score = f"{evaluate(policy, opened.environment(), episodes=run.evaluate_episodes)}, without exploration"
    facts = facts_of(opened.config, opened.plan().name, score)
    with busy("exporting"):
        files = export(policy, run.output or opened.path / "export" / run.to, run.to, facts=facts)
    print("\n".join(map(str, files)))
    return 0
