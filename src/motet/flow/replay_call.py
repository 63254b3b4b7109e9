"""What a node of the graph asks of a replay that lies outside of XLA; elsewhere the node's code does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from motet.flow.values import Structure


@dataclass(frozen=True)
class ReplayCall:
    """One of the things that can be done to a replay."""

    what: Literal["open", "add", "sample", "sweep", "update"]
    replay: Any
    """The replay's options (see motet.replay)."""
    example: Any
    """The types of one addition."""
    state: str
    """The variable of the replay's state."""
    takes: Structure | None = None
    """What an addition or an update is made of."""
    gives: tuple[str, ...] = ()
    """The variables of what was drawn: items and, of a prioritised replay, index and weight."""
    size: int = 0
    """Items of a batch, drawn from so many `blocks` of environments; of a sweep, the steps of a batch."""
    blocks: int = 1
