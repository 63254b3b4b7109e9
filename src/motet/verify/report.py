"""What a check of an algorithm found, as a value that reads as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from motet.verify.pieces import Difference
from motet.verify.rules import Broken

SLIGHT = 1e-7
"""What sums in another order may come to after some iterations, as a share of an array's largest number."""
WIDTH = 100


@dataclass(frozen=True)
class PlanOutcome:
    """What a plan made of the algorithm."""

    plan: str
    refused: tuple[str, ...] = ()
    """Why it was not run."""
    difference: Difference | None = None
    """Where its states are furthest from those of the whole run."""
    slight: float = SLIGHT
    """What of it is rounding, as a share of an array's largest number."""

    @property
    def same(self) -> bool:
        return self.difference is None or self.difference.largest <= self.slight * self.difference.scale

    def __str__(self) -> str:
        if self.refused:
            return f"refused: {self.refused[0]}"
        return "the same as whole" if self.same else f"learns another {self.difference}"


@dataclass(frozen=True, repr=False)
class AlgorithmReport:
    """What was found; `ok`: nothing."""

    algorithm: str
    environment: str
    iterations: int
    broken: tuple[Broken, ...] = ()
    """The rules that methods broke, in the order of the loop."""
    methods: tuple[str, ...] = ()
    """What was called whole and in pieces."""
    plans: tuple[PlanOutcome, ...] = ()
    refused: str = ""
    """Why the loop could not even be traced."""

    @property
    def ok(self) -> bool:
        return not self.refused and not self.broken and all(plan.same for plan in self.plans)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.algorithm} on {self.environment}, {self.iterations} iterations in double precision"
        if self.refused:
            yield from ("", *_wrapped("The loop is refused:", self.refused))
            return
        yield from ("", *_wrapped("Called whole and in pieces:", ", ".join(self.methods) or "nothing"))
        for each in self.broken:
            yield from ("", *each.lines())
        yield ""
        width = max((len(each.plan) for each in self.plans), default=0)
        for each in self.plans:
            yield from _wrapped(f"{each.plan:{width}} ", str(each))
        astray = [each.plan for each in self.plans if not each.same]
        if astray and not self.broken:
            yield from ("", f"No method differs by itself, and yet {', '.join(astray)}: that is a defect of motet.")
        yield from ("", "It keeps the rules of batches." if self.ok else "It breaks a rule of batches.")


def _wrapped(first: str, text: str) -> list[str]:
    """Lines that fit a terminal, those after the first indented."""
    return textwrap.wrap(f"{first} {text}", WIDTH, subsequent_indent=" " * 4, break_long_words=False)
