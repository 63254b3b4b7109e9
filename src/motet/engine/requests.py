"""What a worker asks of its driver, as data. The answer to each is said with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from motet.plan.project import Rounds
from motet.plan.protocol import Version, Wire
from motet.plan.schedule import Ask, Call, Keep


@dataclass(frozen=True)
class Compute:
    """Run a call on the worker's variables -> the variables that it wrote."""

    call: Call
    path: Version
    """The rounds of the loops around it."""


@dataclass(frozen=True)
class Iterate:
    """Run up to `most` whole iterations from number `first` -> (the variables that they wrote, a row of metrics for
    each). How many there are in a call is the driver's choice: it changes nothing that is computed."""

    call: Call
    first: int
    most: int


@dataclass(frozen=True)
class Consult:
    """Ask host environments, or a replay outside of XLA, what they make of a node -> the variables that it writes."""

    operation: Ask | Keep
    path: Version


@dataclass(frozen=True, eq=False)
class Stack:
    """Put together what the rounds of a loop left, one list of rows for each of its outputs -> the outputs. Of a loop
    that did not run there are no rows, and its outputs are zero."""

    loop: Rounds
    rows: dict[str, list[Any]]


@dataclass(frozen=True)
class Put:
    """Send what a wire carries, as it is now -> nothing."""

    wire: Wire
    version: Version


@dataclass(frozen=True)
class Take:
    """Receive on a wire -> the variables that came."""

    wire: Wire
    version: Version | None
    """Which message is due; None: the newest there is, if there is a newer one than what is held."""
    path: Version


@dataclass(frozen=True, eq=False)
class Done:
    """Iterations up to number `iteration` are done -> nothing. Between two iterations a worker's state is whole: here a
    driver may look at it, save it, or let go of the worker."""

    iteration: int
    reported: dict[str, tuple[Any, ...]]
    """What one iteration shows; empty where there is nothing or where it is in `rows`."""
    rows: Any = None
    """A row of metrics for each of several iterations."""


Request = Compute | Iterate | Consult | Stack | Put | Take | Done
