"""The page itself, put together of what a run's folder holds. What is missing or damaged is said in its place."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from motet.flow.draw import place_colours
from motet.runs.anatomy import GRAPH, LINKS, TIMELINE
from motet.runs.curves import AXES, NOT_MEASURED, Logged, read_log
from motet.runs.reading import Damaged, read_json
from motet.runs.report import loop, timeline
from motet.runs.report.charts import chart, number
from motet.runs.report.style import CSS

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
"""What a browser may load for a page, whatever is in it: what it already has."""
MOST_BYTES = 30_000_000
"""Of a film."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True)
class Shown:
    """What is known of the agent besides what its folder holds."""

    evaluation: str = ""
    film: Path | None = None
    notes: tuple[str, ...] = ()
    """What could not be had, and why."""


def page(folder: Path, shown: Shown) -> str:
    """A run's folder as a page of HTML."""
    run = read_log(folder)
    config = run.config
    title = f"{str(config.get('algorithm', '?')).upper()} on {config.get('environment', '?')}"
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(_about(run))}</p>",
        _tiles(run, shown),
        _section("The agent", lambda: _agent(shown)),
        _section("Return", lambda: _returns(run)),
        _section("All that was measured", lambda: _others(run)),
        _section("The loop, coloured by the plan's fragments", lambda: _loop(folder)),
        _section("What each part did", lambda: _timeline(folder)),
        _section("What went over the links", lambda: _links(folder)),
        _section("Configuration", lambda: _configuration(run)),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}{loop.style()}</style></head><body><main>"
    )
    foot = f"<footer>Made by motet of {escape(str(folder))}.</footer></main></body></html>\n"
    return "\n".join([head, *filter(None, parts), foot])


def _section(title: str, make: Callable[[], str]) -> str:
    """A part of the page; what a damaged file costs is its part alone."""
    try:
        body = make()
    except (Damaged, ValueError, LookupError, TypeError, AttributeError, OSError) as error:
        body = f'<div class="card"><p>Not shown: {escape(str(error) or type(error).__name__)}</p></div>'
    return f'<section id="s-{"-".join(title.lower().split()[:3]).strip(",")}"><h2>{title}</h2>{body}</section>'


def _about(run: Logged) -> str:
    seed = run.config.get("seed")
    return ", ".join(
        [f"plan {run.plan or 'unknown'}", *([f"seed {seed}"] if seed is not None else []), str(run.folder)]
    )


def _tiles(run: Logged, shown: Shown) -> str:
    last: dict[str, Any] = {}
    for row in run.rows:
        last.update({name: value for name, value in row.items() if value is not None})
    speeds = run.curve("steps_per_second", "steps")
    told = {
        "return in evaluation": shown.evaluation.partition(" over ")[0].removeprefix("return "),
        "return while training": number(last["return"], 4) if "return" in last else "",
        "environment steps": f"{last.get('steps', 0):,}",
        "steps a second": number(float(speeds[:, 1].max()), 4) if len(speeds) else "",
        "seconds": number(float(last["seconds"]), 4) if "seconds" in last else "",
    }
    tiles = (
        f'<div class="tile"><b>{escape(value)}</b><span>{name}</span></div>' for name, value in told.items() if value
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _agent(shown: Shown) -> str:
    parts = []
    if shown.film is not None:
        content = shown.film.read_bytes()
        if len(content) > MOST_BYTES:
            raise ValueError(f"{shown.film} is too large to be put into a page")
        data = base64.b64encode(content).decode()
        if shown.film.suffix == ".gif":
            parts.append(f'<img class="film" alt="The agent" src="data:image/gif;base64,{data}">')
        else:
            source = f"data:video/mp4;base64,{data}"
            parts.append(f'<video controls autoplay loop muted playsinline src="{source}"></video>')
    if shown.evaluation:
        parts.append(f"<p>Without exploration: {escape(shown.evaluation)}.</p>")
    parts += [f"<p>{escape(note)}</p>" for note in shown.notes]
    return f'<div class="card">{"".join(parts) or "<p>Nothing was played.</p>"}</div>'


def _returns(run: Logged) -> str:
    charts, notes = [], []
    for metric, colour, told in (("return", "var(--line)", ""), ("eval/return", COLOURS[1], ", in evaluations")):
        for over, name in AXES.items():
            points = run.curve(metric, over)
            if len(points):
                charts.append(chart(metric, points, name, colour))
                notes.append(f"over {name}{told}")
    if not charts:
        raise ValueError("no episode has ended yet")
    return _cards(charts, notes)


def _others(run: Logged) -> str:
    names = [name for name in run.metrics if name not in (*NOT_MEASURED, "return", "eval/return", "eval/episodes")]
    charts = [
        chart(name, run.curve(name, "steps"), AXES["steps"], COLOURS[index % len(COLOURS)])
        for index, name in enumerate(names)
    ]
    if not charts:
        raise ValueError("nothing was measured yet")
    return f"<p>Over {AXES['steps']}.</p>{_cards(charts, [''] * len(charts))}"


def _cards(charts: list[str], notes: list[str]) -> str:
    cards = (
        f'<div class="card">{each}{f"<p>{note}</p>" if note else ""}</div>'
        for each, note in zip(charts, notes, strict=False)
    )
    return f'<div class="grid2">{"".join(cards)}</div>'


def _loop(folder: Path) -> str:
    file = folder / GRAPH
    if not file.is_file():
        raise ValueError(f"the run left no {GRAPH}")
    return f'<div class="card loop scroll white">{loop.inline(file.read_text(encoding="utf-8"))}</div>'


def _timeline(folder: Path) -> str:
    lanes = timeline.together(timeline.read(_json(folder, TIMELINE)))
    if not lanes:
        raise ValueError("the run was over before its parts were looked at")
    colours = {name: ink for name, (_, ink) in place_colours(sorted({lane.fragment for lane in lanes})).items()}
    present = [kind for kind in timeline.KINDS if any(span.kind == kind for lane in lanes for span in lane.spans)]
    legend = "".join(f'<span><i style="background:var(--{kind})"></i>{timeline.KINDS[kind]}</span>' for kind in present)
    head = "".join(f'<th class="n">{timeline.KINDS[kind]}</th>' for kind in present)
    shares = {lane.name: lane.shares() for lane in lanes}
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f'<td class="n">{share.get(kind, 0):.0%}</td>' for kind in present)
        + "</tr>"
        for name, share in shares.items()
    )
    return (
        "<p>A few early iterations, after everything was compiled; one clock for all parts. Point at a span to see "
        f'what it is.</p><div class="card"><div class="scroll wide">{timeline.draw(lanes, colours)}</div>'
        f'<div class="legend">{legend}</div></div>'
        f'<div class="card scroll" style="margin-top:12px"><table><tr><th>part</th>{head}</tr>{rows}</table></div>'
    )


def _links(folder: Path) -> str:
    told = _json(folder, LINKS)
    if not told["links"]:
        return '<div class="card"><p>Nothing is cut: the loop is one program, and no link carries anything.</p></div>'
    rows = []
    for row in told["links"]:
        said, counted = row["predicted"], row["measured"]
        same = counted == said
        verdict = ("agree", "as predicted") if same else ("differ", "differs")
        seen = f"{counted['bytes']:,}" if counted else "not counted"
        ages = ", ".join(f"{age} (×{count:,})" for age, count in row["ages"].items()) or "none"
        rows.append(
            f"<tr><td>{escape(str(row['link']))}</td>"
            f"<td>{escape(str(row['source']))} → {escape(str(row['target']))}</td>"
            f"<td>{escape(str(row['rate']))}</td><td class='n'>{said['messages']:,}</td>"
            f"<td class='n'>{said['bytes']:,}</td><td class='n'>{seen}</td>"
            f"<td class='{verdict[0]}'>{verdict[1]}</td><td>{escape(ages)}</td></tr>"
        )
    head = (
        "<th>link</th><th>from, to</th><th>every</th><th class='n'>messages</th><th class='n'>bytes predicted</th>"
        "<th class='n'>bytes measured</th><th></th><th>iterations old</th>"
    )
    note = f"<p>In all {told['iterations']:,} iterations together.</p>"
    return f'{note}<div class="card scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _configuration(run: Logged) -> str:
    options = run.config.get("options")
    rows = "".join(
        f'<tr><td>{escape(str(name))}</td><td class="v mono">{escape(_words(value))}</td></tr>'
        for name, value in (options.items() if isinstance(options, Mapping) else ())
    )
    more = {name: value for name, value in run.config.items() if name not in ("options", "signature")}
    plan = run.folder / "plan.json"
    files = [("The rest of config.json", json.dumps(more, indent=2))]
    files += [("plan.json", plan.read_text())] if plan.is_file() else []
    details = "".join(f"<details><summary>{name}</summary><pre>{escape(text)}</pre></details>" for name, text in files)
    return f'<div class="card"><table>{rows}</table>{details}</div>'


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _json(folder: Path, name: str) -> Any:
    if not (folder / name).is_file():
        raise ValueError(f"the run left no {name}: it is written when the training is over")
    return read_json(folder / name)
