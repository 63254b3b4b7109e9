"""Curves, shares and numbers in few letters, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"
Point = tuple[float, float]
"""Steps, and what was measured there."""


def sparkline(curve: Sequence[Point], width: int) -> str:
    """A curve as a row of blocks, from its lowest value to its highest."""
    values = [value for _, value in resample(curve, width)]
    low, high = min(values, default=0.0), max(values, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def resample(curve: Sequence[Point], most: int) -> list[Point]:
    """At most that many points, which lie evenly: the means of equal stretches of steps that have any."""
    if len(curve) <= most:
        return list(curve)
    first, last = curve[0][0], curve[-1][0]
    stretches: dict[int, list[Point]] = {}
    for point in curve:
        stretches.setdefault(min(most - 1, int(most * (point[0] - first) / ((last - first) or 1))), []).append(point)
    return [(_mean([x for x, _ in each]), _mean([y for _, y in each])) for each in stretches.values()]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bar(share: float, width: int) -> str:
    """A share of 0 to 1 as a bar, exact to an eighth of a letter."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def duration(seconds: float) -> str:
    """3s, 2m05s, 1h02m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def moment(seconds: float) -> str:
    """A short time: 85 us, 12.3 ms, 1.2 s."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 us"


def size(count: float, unit: str = "B") -> str:
    """850 B, 12.3 kB, 1.2 MB."""
    for large, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= large:
            return f"{count / large:.3g} {letter}{unit}"
    return f"{count:.0f} {unit}"


def short(count: float) -> str:
    """A number of steps: 950, 20k, 1.5M."""
    for large, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= large:
            return f"{count / large:.3g}{letter}"
    return f"{count:.0f}"
