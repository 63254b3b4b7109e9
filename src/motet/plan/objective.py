"""What a plan is to be good at, and by how much: "throughput", or "throughput >= 50_000"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from motet.errors import BadOption

UNITS = {
    "throughput": "environment steps/s",
    "throughput-per-watt": "environment steps/J",
    "time-per-update": "s for an iteration",
}
"""What can be asked for, and in what it is counted. Of the last one less is better."""

SHORT: dict[str, tuple[str, ...]] = {
    "throughput": (),
    "throughput-per-watt": ("steps/J",),
    "time-per-update": ("s/iteration",),
}
"""The column of a table that is wanted for it; of throughput there is one anyway."""


class Predicted(Protocol):
    """What is known of a plan before it runs."""

    @property
    def steps_per_second(self) -> float: ...
    @property
    def steps_per_joule(self) -> float: ...
    @property
    def iteration_seconds(self) -> float: ...
    @property
    def word(self) -> str: ...


@dataclass(frozen=True)
class Objective:
    """What to make as large, or as small, as can be."""

    name: str = "throughput"
    bound: float | None = None
    """What must be reached."""

    def value(self, predicted: Predicted) -> float:
        if self.name == "throughput":
            return predicted.steps_per_second
        return predicted.steps_per_joule if self.name == "throughput-per-watt" else predicted.iteration_seconds

    def score(self, predicted: Predicted) -> float:
        """Higher is better."""
        return -self.value(predicted) if self.name == "time-per-update" else self.value(predicted)

    def said(self, predicted: Predicted) -> str:
        """The value with its unit, and where it comes from. Watts are the machine's figures, whatever else is known."""
        word = "modelled" if self.name == "throughput-per-watt" else predicted.word
        return f"{self.value(predicted):,.4g} {UNITS[self.name]} ({word})"

    def best(self, seconds: float, steps: float, watts: float) -> float:
        """The highest score of a plan whose iterations take at least `seconds`, where it draws at least `watts`."""
        if self.name == "time-per-update":
            return -seconds
        fastest = steps / seconds if seconds > 0 else float("inf")
        return fastest if self.name == "throughput" else fastest / watts if watts > 0 else float("inf")

    def is_met(self, predicted: Predicted) -> bool:
        if self.bound is None:
            return True
        value = self.value(predicted)
        return value <= self.bound if self.name == "time-per-update" else value >= self.bound

    def __str__(self) -> str:
        sign = "<=" if self.name == "time-per-update" else ">="
        return self.name if self.bound is None else f"{self.name} {sign} {self.bound:g}"


def parse(text: str) -> Objective:
    """Read "throughput" or "throughput >= 50_000"."""
    found = re.fullmatch(r"\s*([a-z-]+)\s*(?:(>=|<=)\s*([-+.\w]+))?\s*", text)
    name, sign, number = found.groups() if found else ("", None, None)
    right = "<=" if name == "time-per-update" else ">="
    try:
        bound = float(number) if number is not None else None
    except ValueError:
        bound = float("nan")
    if name not in UNITS or (sign not in (None, right)) or (bound is not None and not bound > 0):
        forms = ", ".join(f"{each} ({unit})" for each, unit in UNITS.items())
        raise BadOption(
            f"An objective is one of {forms}, alone or with what must be reached, as 'throughput >= 50_000' or "
            f"'time-per-update <= 0.1'; got {text!r}."
        )
    return Objective(name, bound)
