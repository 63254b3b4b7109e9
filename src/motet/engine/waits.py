"""What a worker waits for, as data: a driver may look at it, print it, sleep on it or let another worker go on."""

from __future__ import annotations

from dataclasses import dataclass

from motet.engine.ports import Channel
from motet.flow.host import Waitable


@dataclass(frozen=True, eq=False)
class Room:
    """A place in a channel for one more message."""

    channel: Channel

    def ready(self) -> bool:
        return self.channel.has_room()

    @property
    def whom(self) -> str:
        """Who must do something first."""
        return self.channel.target

    @property
    def reason(self) -> str:
        return f"room in {self.channel.name}"


@dataclass(frozen=True, eq=False)
class Arrival:
    """A message."""

    channel: Channel

    def ready(self) -> bool:
        return self.channel.has_message()

    @property
    def whom(self) -> str:
        return self.channel.source

    @property
    def reason(self) -> str:
        return self.channel.name


@dataclass(frozen=True, eq=False)
class EnvironmentsReady:
    """The end of a step of host environments that run in processes of their own."""

    pool: Waitable

    def ready(self) -> bool:
        return self.pool.ready()

    @property
    def whom(self) -> str:
        return ENVIRONMENTS

    @property
    def reason(self) -> str:
        return "its environments"


Wait = Room | Arrival | EnvironmentsReady
ENVIRONMENTS = "environments"
"""Whom a worker waits for while they step."""
