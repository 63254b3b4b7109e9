"""The picture of the loop that a run's folder holds, for a page. Nothing in a folder is believed: only shapes, words
and colours are taken over, and no style, script, link or picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from motet.flow.draw import STYLE

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = frozenset({"svg", "g", "title", "defs", "marker", "rect", "path", "text"})
NUMBERS = re.compile(r"[-+.\d\s,MLHVCZAQTSmlhvczaqtse%]*")
COLOUR = re.compile(r"none|#[0-9a-fA-F]{3,8}|(fill:)#[0-9a-fA-F]{3,8}|url\(#[\w-]+\)")
WORD = re.compile(r"[\w-]*")
ALLOWED = {
    **dict.fromkeys(
        ("x", "y", "width", "height", "rx", "d", "viewBox", "refX", "refY", "markerWidth", "markerHeight", "opacity",
         "fill-opacity", "stroke-opacity", "stroke-width", "stroke-dasharray"),
        NUMBERS,
    ),
    **dict.fromkeys(("fill", "stroke", "style", "marker-end"), COLOUR),
    **dict.fromkeys(("class", "id", "role", "orient", "markerUnits", "text-anchor"), WORD),
}  # fmt: skip
"""Attribute -> what it may be."""
MOST = 2_000_000
"""Letters of a picture."""


def inline(text: str) -> str:
    """The picture as a part of a page; a ValueError says that it is none."""
    if len(text) > MOST or "<!" in text:
        raise ValueError("the picture of the loop is not one that motet draws")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"the picture of the loop is damaged: {error}") from None
    if root.tag != f"{SVG}svg":
        raise ValueError("the picture of the loop is no SVG")
    return _copied(root)


def _copied(element: ElementTree.Element) -> str:
    name = element.tag.removeprefix(SVG)
    if name not in SHAPES:
        return ""
    kept = [
        f" {key}={quoteattr(value)}"
        for key, value in element.items()
        if key in ALLOWED and ALLOWED[key].fullmatch(value)
    ]
    inside = "".join(map(_copied, element))
    return f"<{name}{''.join(kept)}>{escape(element.text or '') if name in ('text', 'title') else ''}{inside}</{name}>"


def style() -> str:
    """The style of such pictures, for those of the loop alone."""
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", STYLE)
    return "".join(f".loop {selector.strip()}{{{body.strip()}}}" for selector, body in rules)
