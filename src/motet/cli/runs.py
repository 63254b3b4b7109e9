"""`motet runs`: what has been trained here, and in which state it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.runs.finding import Found

ABOUT = "List the runs of a folder, the latest last. Example: motet runs"


def runs(args: list[str]) -> int:
    """List runs."""
    from motet.cli.options import RunsOptions
    from motet.cli.parsing import parse

    options = parse("runs", args, ABOUT, runs=RunsOptions)
    from motet.errors import BadOption
    from motet.flow.describe import table
    from motet.runs.finding import folders, look

    base = options.runs.folder
    if not base.is_dir():
        raise BadOption(f"There is no folder {base}: `motet train` makes it, or name another one.")
    found = sorted((look(folder) for folder in folders(base)), key=lambda each: each.began)
    if not found:
        print(f"{base} holds no runs.")
        return 0
    header = ("run", "state", "steps", "return", "best", "age", "plan")
    print("\n".join(table(header, [_row(each) for each in found], "<<>>>><")))
    for each in found:
        if each.state in ("failed", "unreadable") and each.reason:
            print(f"\n{each.folder.name}: {each.reason.partition(chr(10))[0]}")
    return 0


def _row(run: Found) -> tuple[object, ...]:
    from motet.runs.glyphs import duration

    return (
        run.folder.name,
        run.state,
        _steps(run),
        _number(run.row.get("return")),
        _number(run.best),
        duration(max(0.0, time.time() - run.began)),
        _plan(run.config),
    )


def _steps(run: Found) -> str:
    done, total = run.row.get("steps"), run.config.get("steps")
    done = done if isinstance(done, int) else 0
    return f"{done:,}/{total:,}" if isinstance(total, int) and total != done else f"{done:,}"


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else "-"


def _plan(config: dict[str, Any]) -> str:
    plan = config.get("plan")
    return str(plan.get("name", "?")) if isinstance(plan, dict) else "?"
