"""What commands print when they are done: a run's result, and lists."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from motet.flow.describe import table
from motet.flow.spaces import Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from motet.runs.progress import speed

if TYPE_CHECKING:
    from motet.bounds import Outside
    from motet.result import Result


def summary(result: Result, wanted: int, outside: Outside) -> str:
    """How long a run of `wanted` steps was, how fast, what went over its links, what to be warned of, and where its
    folder is."""
    whole = f"{result.iterations:,} whole iterations"
    exact = f"in {whole}" if result.steps == wanted else f"instead of {wanted:,}: rounded to {whole}"
    exact = f"of {wanted:,} in {whole}: stopped, since {result.stopped}" if result.stopped else exact
    rate = speed(result.history[0], result.history[-1]) if result.history else None
    fast = f"; {rate:,.0f} steps/s" if rate else ""
    lines = [
        f"steps       {result.steps:,} {exact}",
        f"time        {result.seconds:.1f} s, {result.compile_seconds:.1f} s of it compiling{fast}",
    ]
    if result.best is not None:
        best = result.best
        lines.append(f"best        {best.scores} after {best.steps:,} steps" + (", in best/" if result.run_dir else ""))
    if result.links:
        rows = [
            (each.link, each.source, each.target, f"{each.messages:,}", f"{each.bytes:,}", _lags(each.lags))
            for each in result.links
        ]
        header = ("link", "from", "to", "messages", "bytes", "measured lag")
        lines += ["", *table(header, rows, "<<<>><")]
    if result.accounts:
        rows = [(each.name, f"{each.iterations_per_second:,.1f}", _waited(each.waited)) for each in result.accounts]
        lines += ["", *table(("part", "iterations/s", "waited for"), rows, "<><"), ""]
    if result.foretold is not None:
        lines += ["", *result.foretold.lines(), ""]
    late = [result.foretold.warning] if result.foretold is not None and result.foretold.warning else []
    lines += [f"warning     {warning}" for warning in (*result.warnings, *late)]
    if outside:
        lines.append(f"warning     {outside} (--strict makes it an error)")
    return "\n".join([*lines, f"run folder  {_near(result.run_dir)}"])


def _lags(lags: Mapping[int, int]) -> str:
    """How old values were; a link inside an iteration has nothing to be old."""
    if len(lags) < 2:
        return str(next(iter(lags), "none"))
    return ", ".join(f"{lag} (×{count:,})" for lag, count in sorted(lags.items()))


def _waited(shares: Mapping[str, float]) -> str:
    """For whom, and which share of the time; what is below one in a hundred is left out."""
    return ", ".join(f"{whom} {share:.0%}" for whom, share in shares.items() if share >= 0.01) or "nobody"


def _near(path: Path | None) -> str:
    """A path as one would type it here."""
    return os.path.relpath(path) if path and path.is_relative_to(Path.cwd()) else str(path)


def short_space(space: Space) -> str:
    """A space in few letters: Discrete(2), float32[4], {image: uint8[84,84,3], speed: float32[1]}."""
    if isinstance(space, Dict):
        return f"{{{', '.join(f'{name}: {short_space(part)}' for name, part in space.items)}}}"
    if isinstance(space, Tuple):
        return f"({', '.join(map(short_space, space.spaces))})"
    if isinstance(space, Discrete | MultiDiscrete):
        return str(space)
    kind = "binary" if isinstance(space, MultiBinary) else space.aval.dtype
    return f"{kind}[{','.join(map(str, space.shape))}]"


def short_kinds(kinds: Sequence[type[Space]]) -> str:
    """Kinds of spaces in few letters."""
    return "every" if set(kinds) == set(get_args(Space)) else " ".join(kind.__name__ for kind in kinds)


def listing(header: Sequence[str], rows: Sequence[Sequence[object]], align: str, notes: Sequence[str]) -> str:
    """A table with the first line of a note under each row: beside it, it would not fit a narrow terminal."""
    head, rule, *lines = table(header, rows, align)
    out = [head, rule]
    for line, note in zip(lines, notes, strict=True):
        out += [line, *textwrap.wrap(note.strip().partition("\n")[0], 78, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join(out)
