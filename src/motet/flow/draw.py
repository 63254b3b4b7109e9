"""A graph as a picture, laid out by hand: no other program is needed to draw it or to look at it.

Nodes stand in one column in the order in which they run, framed by their loops. Values for the same round go down
on the right; values for the next round go up on the left. Each end of an edge has a height of its own, so that
labels cannot collide, and the ends of a node are sorted so that edges cross as little as they can: the further
away the other end, the further out the curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from xml.sax.saxutils import escape

from motet.flow.describe import Way, bundles, extent, grouped, heading, title, type_of
from motet.flow.graph import Edge, Graph, Item, Kind, Loop, Node, walk

Side = Literal[-1, 1]  # left, right

FILL: dict[Kind, str] = {
    "init": "#e2e8f0",
    "act": "#bfdbfe",
    "env": "#bbf7d0",
    "call": "#ddd6fe",
    "remember": "#fde68a",
    "sample": "#fed7aa",
    "reprioritize": "#fde68a",
    "apply": "#fecdd3",
}
INK: dict[Kind, str] = {
    "init": "#475569",
    "act": "#1d4ed8",
    "env": "#15803d",
    "call": "#6d28d9",
    "remember": "#b45309",
    "sample": "#c2410c",
    "reprioritize": "#b45309",
    "apply": "#be123c",
}
PLACES = (
    ("#bfdbfe", "#1d4ed8"),
    ("#fed7aa", "#c2410c"),
    ("#bbf7d0", "#15803d"),
    ("#ddd6fe", "#6d28d9"),
    ("#fde68a", "#b45309"),
    ("#fecdd3", "#be123c"),
)
"""Fill and ink of what runs in one place; the first place has the first."""
RATE = {"step": "#ea580c", "update": "#7c3aed", "iteration": "#2563eb", "run": "#94a3b8"}
FAINT = ' fill-opacity="0.45" stroke-opacity="0.5" stroke-dasharray="4 3"'
UNITS = ("B", "kB", "MB", "GB", "TB")
DASHES = 'stroke-width="1.3" stroke-dasharray="1 4"'
STYLE = """
  text { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #0f172a }
  .title { font-size: 19px; font-weight: 700 } .note { font-size: 11.5px; fill: #64748b }
  .node { font-size: 14px; font-weight: 700 } .kind { font-size: 10.5px }
  .loop { font-size: 12px; font-weight: 700 }
  .value { font-size: 11px } .size { font-size: 10px; fill: #64748b }
  .edge { fill: none; stroke-linecap: round } .edge:hover { stroke-width: 5 }
"""

CARD, ROW, PAD, GAP, HEAD = 190, 36, 15, 12, 26
"""Width of a node, height of an edge's end, and the distances between and around nodes and below a frame's name."""
LABEL, LETTER, MARGIN, TOP = 226, 6.63, 24, 104
"""Width of a label and of one of its letters, the picture's margin, and the height of its head."""


def svg(graph: Graph, homes: Mapping[str, str] | None = None) -> str:
    """The graph as a self-contained SVG document. With `homes`, which say where each node runs, nodes have the colours
    of their places, and edges within a place are faint."""
    return "\n".join(_Picture(graph, homes or {}).draw()) + "\n"


def place_colours(names: list[str]) -> dict[str, tuple[str, str]]:
    """The fill and ink of each place, in their order."""
    return {name: PLACES[index % len(PLACES)] for index, name in enumerate(names)}


@dataclass(frozen=True)
class _Box:
    item: Item
    depth: int
    top: float
    height: float
    again: bool
    """True: a node that is drawn, with its edges, in the iteration too."""


@dataclass
class _Picture:
    """Where everything is. Heights follow from the edges' ends, widths from the depth of the nest."""

    graph: Graph
    homes: Mapping[str, str]
    boxes: list[_Box] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = place_colours(sorted(set(self.homes.values())))
        self.ways = bundles(self.graph)
        self.order = {node.name: place for place, node in enumerate(self.graph.nodes())}
        self.depth = max(len(path) for item, path in walk(self.graph.root) if isinstance(item, Node))
        self.ends = {(name, side): self._ends(name, side) for name in self.order for side in (-1, 1)}
        repeated = {item.name for item, _ in walk(self.graph.iteration)}
        self.bottom = TOP
        for item in self.graph.root.body:
            again = frozenset() if item is self.graph.iteration else repeated
            self.bottom = self._place(item, 1, self.bottom, again) + GAP
        self.cards = {box.item.name: box for box in self.boxes if isinstance(box.item, Node) and not box.again}

    # Up and down.

    def _place(self, item: Item, depth: int, top: float, repeated: Set[str]) -> float:
        """Give an item, and all that is in it, its place -> where it ends."""
        again = item.name in repeated
        if isinstance(item, Node):
            rows = max(len(self.ends[item.name, -1]), len(self.ends[item.name, 1]))
            height = 30 if again else max(46, rows * ROW + 2)
        else:
            below = top + HEAD
            for child in item.body:
                below = self._place(child, depth + 1, below, repeated) + GAP
            height = below - GAP + PAD - top
        self.boxes.append(_Box(item, depth, top, height, again))
        return top + height

    def _ends(self, name: str, side: Side) -> list[object]:
        """The ends of edges at one side of a node, from top to bottom."""
        here = self.order[name]
        away: dict[object, int] = {}  # how far below (above, if negative) the other end is
        for way in self.ways:
            if _side(way) != side:
                continue
            if way.consumer == name:
                away[way] = self.order[way.producer] - here
            if way.producer == name:
                start = self.start(way)
                away[start] = max(away.get(start, 0), self.order[way.consumer] - here, key=abs)
        above = sorted((end for end in away if away[end] < 0), key=lambda end: -away[end])
        below = sorted((end for end in away if away[end] > 0), key=lambda end: -away[end])
        return [*above, *(end for end in away if away[end] == 0), *below]

    def start(self, way: Way) -> object:
        """Edges that take the same values out of a node leave it together."""
        return (way.producer, way.carried, *(edge.var for edge in self.ways[way]))

    def height_of(self, name: str, side: Side, end: object) -> float:
        box, ends = self.cards[name], self.ends[name, side]
        return box.top + box.height / 2 + (ends.index(end) - (len(ends) - 1) / 2) * ROW

    # From side to side.

    def bulge(self, way: Way) -> float:
        """How far out the curve of an edge goes: further, the longer it is."""
        side = _side(way)
        start = self.height_of(way.producer, side, self.start(way))
        return 14 + 7 * math.sqrt(abs(self.height_of(way.consumer, side, way) - start))

    def _reach(self, side: Side) -> float:
        return MARGIN + 0.75 * max((self.bulge(way) for way in self.ways if _side(way) == side), default=0)

    @cached_property
    def frame(self) -> tuple[float, float]:
        """The left and right border of the outermost frame."""
        left = self._reach(-1) + LABEL
        return left, left + CARD + 2 * PAD * self.depth

    @property
    def width(self) -> float:
        return self.frame[1] + LABEL + self._reach(1)

    def borders(self, box: _Box) -> tuple[float, float]:
        inset = PAD * (self.depth if isinstance(box.item, Node) else box.depth - 1)
        return self.frame[0] + inset, self.frame[1] - inset

    # What is seen.

    def draw(self) -> Iterator[str]:
        width, height = round(self.width), round(self.bottom + 52)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">'
        )
        yield f"<title>{escape(title(self.graph))}</title>"
        yield f"<style>{STYLE}</style>"
        yield "<defs>" + "".join(map(_arrow, RATE)) + "</defs>"
        yield f'<rect width="{width}" height="{height}" rx="14" fill="#ffffff"/>'
        yield from self._head()
        for box in sorted(self.boxes, key=lambda box: box.depth):
            if isinstance(box.item, Loop):
                yield from self._loop(box, box.item)
        # The rarest first: what is seen most often lies on top.
        for rate in reversed(RATE):
            for way, edges in self.ways.items():
                if way.rate == rate:
                    yield from self._edge(way, edges)
        for box in self.boxes:
            if isinstance(box.item, Node):
                yield from self._node(box, box.item)
        yield from self._legend(height - 30)
        yield "</svg>"

    def _head(self) -> Iterator[str]:
        left, right = self.frame
        yield _text(MARGIN, 38, title(self.graph), "title")
        yield _text(MARGIN, 58, extent(self.graph), "note")
        yield _text(left - 12, TOP - 14, "for the next round ↑", "note", "end")
        yield _text(right + 12, TOP - 14, "for the same round ↓", "note")

    def _loop(self, box: _Box, loop: Loop) -> Iterator[str]:
        left, right = self.borders(box)
        colour = RATE[loop.rate]
        yield (
            f'<rect x="{left:.1f}" y="{box.top:.1f}" width="{right - left:.1f}" height="{box.height:.1f}" rx="12" '
            f'fill="{colour}" fill-opacity="0.045" stroke="{colour}" stroke-opacity="0.55"/>'
        )
        yield _text(left + 12, box.top + 18, heading(self.graph, loop), "loop", colour=colour)

    def _node(self, box: _Box, node: Node) -> Iterator[str]:
        left, right = self.borders(box)
        home = self.homes.get(node.name)
        fill, ink = self.places[home] if home else (FILL[node.kind], INK[node.kind])
        middle = box.top + box.height / 2
        kind = node.kind + (", batch statistic" if node.statistic else "")
        yield f"<g><title>{escape(_reads_and_writes(node))}</title>"
        yield (
            f'<rect x="{left:.1f}" y="{box.top:.1f}" width="{right - left:.1f}" height="{box.height:.1f}" rx="9" '
            f'fill="{fill}" stroke="{ink}" stroke-width="1.2"{FAINT if box.again else ""}/>'
        )
        if box.again or kind == node.name:
            yield _text((left + right) / 2, middle + 5, node.name, "node", "middle")
        else:
            yield _text((left + right) / 2, middle - 1, node.name, "node", "middle")
            yield _text((left + right) / 2, middle + 14, kind, "kind", "middle", ink)
        yield "</g>"

    def _edge(self, way: Way, edges: list[Edge]) -> Iterator[str]:
        side, colour = _side(way), RATE[way.rate]
        edge_of_node = self.borders(self.cards[way.consumer])[side > 0]
        start = self.height_of(way.producer, side, self.start(way))
        end = self.height_of(way.consumer, side, way)
        turn = self.frame[side > 0] + side * LABEL
        out = turn + side * self.bulge(way)
        size = sum(self.graph.variables[edge.var].nbytes() for edge in edges)
        weight = f'stroke-width="{1 + 0.3 * math.log10(max(size, 1)):.2f}"' if way.rate != "run" else DASHES
        within = bool(self.places) and self.homes.get(way.producer) == self.homes.get(way.consumer)
        faint = ' opacity="0.4"' if within and len(self.places) > 1 else ""
        yield f"<g{faint}><title>{escape(self._details(way, edges))}</title>"
        yield (
            f'<path class="edge" d="M{edge_of_node:.1f} {start:.1f} H{turn:.1f} C{out:.1f} {start:.1f} {out:.1f} '
            f'{end:.1f} {turn:.1f} {end:.1f} H{edge_of_node + side * 7:.1f}" stroke="{colour}" '
            f'{weight} marker-end="url(#{way.rate})"/>'
        )
        anchor, at = ("start", self.frame[1] + 12) if side > 0 else ("end", self.frame[0] - 12)
        yield _text(at, end - 5, _short([edge.var for edge in edges]), "value", anchor)
        yield _text(at, end + 12, self._size(way, edges, size), "size", anchor)
        yield "</g>"

    def _size(self, way: Way, edges: list[Edge], size: int) -> str:
        often = f"{_bytes(size)} {'at the start' if way.rate == 'run' else f'per {way.rate}'}"
        kind = type_of(self.graph, self.graph.variables[edges[0].var], most=1)
        both = f"{kind}, {often}"
        return both if len(edges) == 1 and len(both) * LETTER * 10 / 11 <= LABEL - 20 else often

    def _details(self, way: Way, edges: list[Edge]) -> str:
        lines = [f"{way.producer} → {way.consumer}, {'carried, ' if way.carried else ''}rate {way.rate}"]
        for edge in edges:
            var = self.graph.variables[edge.var]
            lines.append(f"{edge.var}: {type_of(self.graph, var)}, {var.nbytes():,} bytes")
        return "\n".join(lines)

    def _legend(self, top: float) -> Iterator[str]:
        at = float(MARGIN)
        for rate in (rate for rate in RATE if any(way.rate == rate for way in self.ways)):
            label = "at the start" if rate == "run" else f"every {rate}"
            weight = 'stroke-width="2.4"' if rate != "run" else DASHES
            yield (
                f'<path class="edge" d="M{at:.1f} {top:.1f} h26" stroke="{RATE[rate]}" {weight}/>'
                + _text(at + 33, top + 4, label, "note")
            )
            at += 33 + len(label) * 6.95 + 22
        kinds = {node.kind: (FILL[node.kind], INK[node.kind]) for node in self.graph.nodes()}
        for name, (fill, ink) in (self.places or kinds).items():
            yield (
                f'<rect x="{at:.1f}" y="{top - 7:.1f}" width="14" height="14" rx="4" fill="{fill}" '
                f'stroke="{ink}"/>' + _text(at + 20, top + 4, name, "note")
            )
            at += 20 + len(name) * 6.95 + 18


def _side(way: Way) -> Side:
    return -1 if way.carried else 1


def _short(names: list[str]) -> str:
    """The names of an edge's values, as many as there is room for."""
    most = int((LABEL - 20) / LETTER)
    whole = ", ".join(grouped(names))
    if len(whole) <= most:
        return whole
    links = dict.fromkeys(name.partition(".")[0] for name in names)
    return f"{', '.join(links)} ({len(names)} values)"


def _bytes(count: int) -> str:
    """A size in the unit that suits it."""
    power = min((len(str(count)) - 1) // 3, len(UNITS) - 1)
    value = count / 1000**power
    return f"{value:.1f} {UNITS[power]}" if power and value < 100 else f"{value:.0f} {UNITS[power]}"


def _reads_and_writes(node: Node) -> str:
    return f"reads {', '.join(node.reads) or 'nothing'}\nwrites {', '.join(node.writes)}"


def _arrow(rate: str) -> str:
    return (
        f'<marker id="{rate}" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{RATE[rate]}"/></marker>'
    )


def _text(x: float, y: float, words: str, style: str, anchor: str = "start", colour: str = "") -> str:
    fill = f' style="fill:{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}"{fill}>{escape(words)}</text>'
