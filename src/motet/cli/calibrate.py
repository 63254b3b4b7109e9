"""`motet calibrate`: correct a profile by what a run measured."""

from __future__ import annotations

ABOUT = (
    "Correct the profile that a run's plan was chosen by with what the run measured. The next choice for the same loop "
    "on this machine is made from it. Example: motet calibrate latest"
)


def calibrate(args: list[str]) -> int:
    """Correct a profile by what a run measured."""
    from motet.cli.options import CalibrateOptions
    from motet.cli.parsing import parse

    options = parse("calibrate", args, ABOUT, run=CalibrateOptions).run
    from motet.calibration import calibrate
    from motet.runs.finding import resolve_run

    print(calibrate(resolve_run(options.run_dir)))
    return 0
