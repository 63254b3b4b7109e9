"""The rules of batches, and which of them a method broke whose results differ in pieces."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from motet.flow.graph import WHOLE, Node, uses_key
from motet.flow.jaxprs import ClosedJaxpr, Jaxpr
from motet.verify.pieces import Difference

UPDATES = (
    "a state changes by results over the whole batch alone",
    "compute what changes it, such as a gradient, in a method for flow.call, whose results are combined over the "
    "pieces, and pass that to flow.apply; or take motet.batch_mean and the like inside of it",
)
KEYS = (
    "random numbers for rows come from `keys`",
    "give the method a parameter `keys`, one for each row and the same however the batch is cut, instead of drawing "
    "for all rows with one key",
)
STATISTICS = (
    "statistics that rows are computed with are taken over the whole batch",
    "use motet.batch_mean, motet.batch_moments, motet.batch_max and the like in place of jnp's",
)
RESULTS = (
    "what has no row for each environment is a mean, a sum or an extreme over the rows",
    "a mean with weights or a mask is motet.batch_mean(x, weight), not sum(weight * x) / sum(weight); what else is "
    "over the batch is taken with motet.batch_sum, motet.batch_max and the like, and the rest computed from it",
)

RANDOM = ("random_", "threefry", "rng_", "shuffle")
"""How the names of JAX's random primitives begin."""


@dataclass(frozen=True)
class Broken:
    """A rule that a method broke."""

    method: str
    rule: str
    advice: str
    differences: tuple[Difference, ...]
    """What came out otherwise, largest share first."""
    pieces: str
    """Into what the batch was cut."""
    why: tuple[str, ...] = ()
    """What its program showed of it."""

    def lines(self) -> list[str]:
        first, *more = self.differences
        others = f", and {len(more)} other arrays" if len(more) > 1 else f", and {more[0]}" if more else ""
        what = f"With the batch in {self.pieces}, it returns another {first}{others}."
        said = [what, f"The rule: {self.rule}.", f"What to do: {self.advice}."]
        said += [f"Seen in its program: {self.why[0]}."] if self.why else []
        return [self.method, *(f"    {line}" for each in said for line in textwrap.wrap(each, 92))]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def broken(node: Node, pieces: str, found: Sequence[Difference]) -> Broken:
    """Which rule it was."""
    ordered = tuple(sorted(found, key=lambda each: -each.largest / (each.scale or 1)))
    return Broken(node.name, *_rule(node, ordered), ordered, pieces, node.whole)


def _rule(node: Node, found: Sequence[Difference]) -> tuple[str, str]:
    if node.kind == "apply":
        return UPDATES
    code = node.code[WHOLE]
    if node.draws or (not uses_key(code) and _is_random(code)):
        return KEYS
    return STATISTICS if any(each.rows for each in found) else RESULTS


def _is_random(code: Any) -> bool:
    """Whether a program draws random numbers, with whatever key."""
    return any(name.startswith(RANDOM) for name in _primitives(code.jaxpr))


def _primitives(jaxpr: Jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, (ClosedJaxpr, Jaxpr)):
                    yield from _primitives(inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner)
