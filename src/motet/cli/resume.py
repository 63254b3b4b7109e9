"""`motet resume`."""

from __future__ import annotations

from motet.errors import BadOption

ABOUT = (
    "Go on with a run that was stopped or killed, or that is to be longer, from its last checkpoint. "
    "Example: motet resume runs/first --total-timesteps 1_000_000"
)


def resume(args: list[str]) -> int:
    """Go on with a run, evaluate, and say what came of it."""
    from motet.cli.options import ResumeOptions
    from motet.cli.parsing import parse
    from motet.cli.plan_options import plan_options

    options = parse("resume", args, ABOUT, run=ResumeOptions, plan=plan_options())
    run = options.run
    if run.evaluate_episodes < 0:
        raise BadOption(f"--evaluate-episodes must be at least 0, got {run.evaluate_episodes}")
    from motet import resuming
    from motet.cli.plan_options import chosen_plan
    from motet.cli.train import conclude, make_devices
    from motet.opened import open_run
    from motet.runs.display import live_display

    opened = open_run(run.run_dir, "resume", trusted=run.trust, learns=True)
    devices = run.devices or opened.number("devices")
    if run.devices is not None or devices > 1:
        make_devices(devices)
    env = opened.environment()
    result = resuming.resume(
        opened.path,
        total_timesteps=run.total_timesteps,
        plan=chosen_plan(options.plan),
        iteration=run.iteration,
        env=env,
        trust=run.trust,
        command=["motet", "resume", *args],
        progress=False,
        callbacks=[live_display()],
        mode="serial" if run.serial else "threads",
        timeout=run.timeout,
        step_timeout=run.step_timeout,
        restarts=run.restarts,
        cluster=run.cluster(),
        track=run.track,
        **run.checkpoints(),
    )
    return conclude(run, result, env, opened.names.environment, opened.number("seed"))
