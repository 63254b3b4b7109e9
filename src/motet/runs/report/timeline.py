"""What each replica did in a few iterations, as SVG: a lane each, one clock for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

KINDS = {
    "compute": "computing",
    "environments": "stepping environments",
    "replay": "asking the replay",
    "send": "sending",
    "receive": "receiving",
    "wait": "waiting",
}
"""What a span is -> what a reader calls it."""
WIDTH, LANE, NAME, TOP = 1000, 34, 96, 8
NARROW = 0.35
"""Spans of fewer units than this cannot be seen: neighbours are drawn as one."""


@dataclass(frozen=True)
class DrawnSpan:
    kind: str
    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class DrawnLane:
    name: str
    fragment: str
    spans: tuple[DrawnSpan, ...]

    def shares(self) -> dict[str, float]:
        """Which part of its time each kind took. What a program waits for inside, the environments do."""
        total = (max(each.end for each in self.spans) - min(each.start for each in self.spans)) or 1.0
        sums = dict.fromkeys(KINDS, 0.0)
        calls = [each for each in self.spans if each.kind == "compute"]
        for each in self.spans:
            sums[each.kind] += each.seconds
            if each.kind == "environments" and any(c.start <= each.start and each.end <= c.end for c in calls):
                sums["compute"] -= each.seconds
        return {kind: spent / total for kind, spent in sums.items() if spent > 0}


def read(told: Any) -> list[DrawnLane]:
    """The lanes of a timeline.json that have something to show; a ValueError says that it is none."""
    lanes = []
    for lane in _list(told.get("lanes") if isinstance(told, Mapping) else None):
        if not isinstance(lane, Mapping):
            raise ValueError("a lane should be an object")
        names = _list(lane.get("names"))
        spans = tuple(_span(each, names) for each in _list(lane.get("spans")))
        if spans:
            lanes.append(DrawnLane(str(lane.get("name")), str(lane.get("fragment")), spans))
    return lanes


def _span(told: Any, names: Sequence[Any]) -> DrawnSpan:
    match told:
        case [str(kind), int(name), int(start), int(end)] if kind in KINDS and 0 <= name < len(names) and start <= end:
            return DrawnSpan(kind, str(names[name]), start / 1e6, end / 1e6)
    raise ValueError(f"a span should be [kind, name, start, end], but is {str(told)[:60]}")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it should have lists of lanes, names and spans")
    return value


def together(lanes: Sequence[DrawnLane]) -> list[DrawnLane]:
    """The lanes while all of them were looked at: whoever began first only waited for the others to be compiled."""
    start = max((min(span.start for span in lane.spans) for lane in lanes), default=0.0)
    end = min((max(span.end for span in lane.spans) for lane in lanes), default=0.0)
    cut = [
        replace(
            lane,
            spans=tuple(
                replace(span, start=max(span.start, start), end=min(span.end, end))
                for span in lane.spans
                if span.end > start and span.start < end
            ),
        )
        for lane in lanes
    ]
    return cut if all(lane.spans for lane in cut) else list(lanes)


def draw(lanes: Sequence[DrawnLane], colours: Mapping[str, str]) -> str:
    """The lanes, below each other; each is named, in the colour of its fragment."""
    first = min(span.start for lane in lanes for span in lane.spans)
    last = max(span.end for lane in lanes for span in lane.spans)
    scale = (WIDTH - NAME) / ((last - first) or 1.0)
    height = TOP + LANE * len(lanes) + 26
    parts = [f'<svg class="time" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="What each part did">']
    for tick in _ticks(last - first):
        x = NAME + tick * scale
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{height - 22}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{duration(tick)}</text>')
    for row, lane in enumerate(lanes):
        y = TOP + row * LANE
        parts.append(f'<rect class="tag" x="0" y="{y + 7}" width="4" height="{LANE - 14}" rx="2" '
                     f'style="fill:{escape(colours.get(lane.fragment, "#94a3b8"))}"/>')  # fmt: skip
        parts.append(f'<text class="lane" x="12" y="{y + LANE / 2 + 4}">{escape(lane.name)}</text>')
        for span in _visible(lane.spans, scale):
            x, wide = NAME + (span.start - first) * scale, max(span.seconds * scale, NARROW)
            inset = 9 if span.kind == "environments" else 4
            tall = LANE - 2 * inset
            parts.append(
                f'<rect class="k-{span.kind}" x="{x:.2f}" y="{y + inset}" width="{wide:.2f}" height="{tall}">'
                f"<title>{KINDS[span.kind]}: {escape(span.name)}, {duration(span.seconds)}</title></rect>"
            )
    return "".join([*parts, "</svg>"])


def _visible(spans: Sequence[DrawnSpan], scale: float) -> list[DrawnSpan]:
    """Long ones first, so that what happens inside lies on top; neighbours of one kind that are too short to see are
    one."""
    found: list[DrawnSpan] = []
    for span in sorted(spans, key=lambda each: each.start):
        last = found[-1] if found else None
        near = last is not None and last.kind == span.kind and (span.start - last.end) * scale < NARROW
        if last is not None and near and span.seconds * scale < NARROW:
            found[-1] = DrawnSpan(last.kind, last.name, last.start, max(last.end, span.end))
        else:
            found.append(span)
    return sorted(found, key=lambda each: -each.seconds)


def _ticks(seconds: float) -> list[float]:
    rough = (seconds or 1.0) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    return [count * step for count in range(int(seconds / step) + 1)]


def duration(seconds: float) -> str:
    """12 µs, 3.4 ms, 1.2 s."""
    if seconds == 0:
        return "0"
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
