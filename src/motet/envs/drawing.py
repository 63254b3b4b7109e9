"""How motet's own environments draw themselves: shapes in the environment's own coordinates, with smooth edges.

Pillow draws each shape three times as large as it is seen, and the picture is then made smaller: that is what makes
edges smooth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Point = tuple[float, float]

PAPER, INK, FAINT, SHADE = "#f8fafc", "#1e293b", "#cbd5e1", "#e2e8f0"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
"""Colours that colour-blind people can tell apart (Okabe and Ito)."""
FINER = 3
"""How many times as large as it is seen a picture is drawn."""


class Canvas:
    """A picture of `width` x `height` pixels of what lies between `left` and `right`; `bottom` is its lower edge.

    A unit is as long upwards as it is to the right. Widths of lines are in pixels.
    """

    def __init__(self, width: int, height: int, left: float, right: float, bottom: float):
        from PIL import Image, ImageDraw

        self.size = width, height
        self._scale = FINER * width / (right - left)
        self._origin = -left * self._scale, FINER * height + bottom * self._scale
        self._image = Image.new("RGB", (FINER * width, FINER * height), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def pixels(self) -> np.ndarray:
        """The picture, uint8 [height, width, 3]."""
        return np.asarray(self._image.reduce(FINER))

    def line(self, points: Sequence[Point], colour: str, width: float = 2.0) -> None:
        """From point to point, with round ends and corners."""
        places = [self._at(point) for point in points]
        thick = max(1, round(FINER * width))
        self._draw.line(places, colour, thick, joint="curve")
        for place in (places[0], places[-1]):
            self._disc(place, thick / 2, colour)

    def dashes(self, start: Point, end: Point, colour: str, width: float = 1.5, count: int = 24) -> None:
        ends = [(start[0] + (end[0] - start[0]) * t, start[1] + (end[1] - start[1]) * t) for t in _grid(2 * count)]
        for one, other in zip(ends[::2], ends[1::2], strict=False):
            self.line((one, other), colour, width)

    def shape(self, points: Sequence[Point], colour: str) -> None:
        self._draw.polygon([self._at(point) for point in points], colour)

    def disc(self, centre: Point, radius: float, colour: str) -> None:
        self._disc(self._at(centre), radius * self._scale, colour)

    def box(self, low: Point, high: Point, colour: str, round_by: float = 0.0) -> None:
        """A rectangle from its lower left to its upper right corner."""
        (left, bottom), (right, top) = self._at(low), self._at(high)
        self._draw.rounded_rectangle((left, top, right, bottom), round_by * self._scale, colour)

    def _at(self, point: Point) -> Point:
        return self._origin[0] + point[0] * self._scale, self._origin[1] - point[1] * self._scale

    def _disc(self, place: Point, radius: float, colour: str) -> None:
        x, y = place
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), colour)


def turned(points: Sequence[Point], angle: float, about: Point) -> list[Point]:
    """The points, turned to the left by `angle` and moved so that what was at 0 is `about`."""
    sin, cos = math.sin(angle), math.cos(angle)
    return [(about[0] + x * cos - y * sin, about[1] + x * sin + y * cos) for x, y in points]


def _grid(count: int) -> list[float]:
    return [place / (count - 1) for place in range(count)]
