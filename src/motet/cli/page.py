"""`motet report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motet.errors import BadOption, MotetError

ABOUT = (
    "Make one page of HTML of a run, which opens without a network: curves, the loop and its fragments, what each did, "
    "its links, its configuration, the agent. Example: motet report runs/first"
)


def report(args: list[str]) -> int:
    """Make a page of a run."""
    from motet.cli.options import ReportOptions
    from motet.cli.parsing import parse

    run = parse("report", args, ABOUT, run=ReportOptions).run
    from motet.cli.arguments import busy
    from motet.runs.curves import read_log
    from motet.runs.finding import resolve_run
    from motet.runs.policy import write_whole
    from motet.runs.report.page import Shown, page

    if run.episodes < 0:
        raise BadOption(f"--episodes must be at least 0, got {run.episodes}")
    folder = resolve_run(run.run_dir)
    read_log(folder)  # what is no run is refused before anything is played
    output = run.output or folder / "report.html"
    with busy("playing"):
        shown = _played(run, folder) if run.episodes else Shown(film=_newest_film(folder))
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_whole(output, page(folder, shown).encode())
    except OSError as error:
        raise BadOption(f"{output} cannot be written: {error.strerror}.") from None
    print(output)
    return 0


def _played(run: Any, folder: Path) -> Any:
    """An evaluation and a film; a run that cannot be played has a page all the same."""
    from motet.evaluation import evaluate
    from motet.opened import open_run
    from motet.recording import record
    from motet.runs.report.page import Shown
    from motet.runs.video import best_format

    score, film, notes = "", _newest_film(folder), []
    try:
        opened = open_run(folder, "report on", trusted=run.trust)
        policy, env = opened.policy(run.checkpoint, trusted=run.trust), opened.environment()
        score = str(evaluate(policy, env, episodes=run.episodes))
        if film is None:
            film = record(policy, env, folder / "videos" / f"{run.checkpoint}-0{best_format()}").path
    except (MotetError, OSError) as error:
        notes.append(f"{'No film' if score else 'Not played'}: {error}")
    return Shown(score, film, tuple(notes))


def _newest_film(folder: Path) -> Path | None:
    found = [
        path for path in (folder / "videos").glob("*") if path.suffix in (".mp4", ".gif") and ".part" not in path.name
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)
