"""`motet record`."""

from __future__ import annotations

ABOUT = "Film episodes of a trained policy, without exploration. Example: motet record runs/first --episodes 3"


def record(args: list[str]) -> int:
    """Film episodes of a trained policy."""
    from motet.cli.options import RecordOptions
    from motet.cli.parsing import parse

    run = parse("record", args, ABOUT, run=RecordOptions).run
    from motet.cli.arguments import busy
    from motet.opened import open_run
    from motet.recording import record
    from motet.runs.video import best_format

    opened = open_run(run.run_dir, "record", trusted=run.trust)
    policy = opened.policy(run.checkpoint, trusted=run.trust)
    output = run.output or opened.path / "videos" / f"{run.checkpoint}-{run.seed}{best_format()}"
    with busy("filming"):
        film = record(
            policy,
            opened.environment(),
            output,
            episodes=run.episodes,
            seed=run.seed,
            max_steps=run.max_steps,
            fps=run.fps,
            step_timeout=run.step_timeout,
        )
    print(film)
    return 0
