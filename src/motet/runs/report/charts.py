"""Curves as SVG, drawn by hand: a chart of a size that fits a telephone; a screen has several beside each other.

Colours are the page's, so that a chart follows it into the dark. What is under the pointer is told by titles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

import numpy as np

WIDTH, HEIGHT = 380, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 30, 28
At = Callable[[np.ndarray], tuple[float, float]]
"""From what was measured to a place in the chart."""
STRIPES = 80
"""Of so many parts of a chart the pointer is told what is there."""


def chart(title: str, points: np.ndarray, over: str, colour: str = "var(--line)") -> str:
    """A curve [points, 2] with its axes."""
    x, y = points.T
    low, high, ticks = _axis(float(y.min()), float(y.max()))
    first, last = float(x.min()), float(x.max())
    across = (WIDTH - LEFT - RIGHT) / ((last - first) or 1.0)
    up = (HEIGHT - TOP - BOTTOM) / (high - low)

    def at(point: np.ndarray) -> tuple[float, float]:
        return LEFT + (point[0] - first) * across, HEIGHT - BOTTOM - (point[1] - low) * up

    label = escape(f"{title} over {over}")
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        f'<text class="name" x="0" y="15">{escape(title)}</text>',
        f'<text class="last" x="{WIDTH - RIGHT}" y="15">{number(float(y[-1]))}</text>',
    ]
    for tick in ticks:
        height = HEIGHT - BOTTOM - (tick - low) * up
        parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 7}" y="{height + 3.5:.1f}">{number(tick)}</text>')
    for place, anchor in ((first, "start"), ((first + last) / 2, "middle"), (last, "end")):
        spot = LEFT + (place - first) * across
        parts.append(
            f'<text class="tick" x="{spot:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{number(place)}</text>'
        )
    line = "L".join("{:.1f} {:.1f}".format(*at(point)) for point in points)
    ends = f"{at(points[-1])[0]:.1f} {HEIGHT - BOTTOM}L{at(points[0])[0]:.1f} {HEIGHT - BOTTOM}"
    parts.append(f'<path class="area" style="fill:{colour}" d="M{line}L{ends}Z"/>')
    parts.append(f'<path class="line" style="stroke:{colour}" d="M{line}"/>')
    parts += _stripes(points, over, at, colour)
    return "".join([*parts, "</svg>"])


def _stripes(points: np.ndarray, over: str, at: At, colour: str) -> list[str]:
    chosen = points[np.unique(np.linspace(0, len(points) - 1, min(STRIPES, len(points))).round().astype(int))]
    wide = (WIDTH - LEFT - RIGHT) / max(len(chosen) - 1, 1)
    found = []
    for point in chosen:
        x, y = at(point)
        found.append(
            f'<g class="stripe"><title>{number(point[1], 6)} at {number(point[0], 6)} {escape(over)}</title>'
            f'<rect x="{x - wide / 2:.1f}" y="{TOP}" width="{wide:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:{colour}"/></g>'
        )
    return found


def _axis(low: float, high: float) -> tuple[float, float, list[float]]:
    """Whole steps of 1, 2 or 5 around what is to be shown: (from, to, ticks)."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - (abs(low) or 1) * 0.5, high + (abs(high) or 1) * 0.5
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    start, stop = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(each * step, 12) for each in range(start, stop + 1)]
    return ticks[0], ticks[-1], ticks


def number(value: float, digits: int = 3) -> str:
    """In few letters: 1.5M, 250, 0.00031."""
    if digits > 3:
        return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.{digits}g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.{digits}g}{letter}"
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.{digits}g}"
