"""How whoever leads a run reaches its hosts: the seam between the driver and whatever starts processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from motet.engine.hosts.failure import Failure


class Lost(Exception):
    """A host's process is gone, or does not answer."""

    def __init__(self, host: int, why: str):
        super().__init__(f"host {host} {why}")
        self.host, self.why = host, why


class Hosts(Protocol):
    """The processes of one generation. A context manager that ends them."""

    def ask(self, host: int, method: str, *args: Any) -> Any:
        """Call a method of a host -> a ticket for its answer."""
        ...

    def ready(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """Those tickets whose answers are there; waits so long for the first one."""
        ...

    def answer(self, ticket: Any) -> Any:
        """The answer of a ticket that is ready. Raises `Lost`."""
        ...


class Launcher(Protocol):
    """Starts the processes of a run."""

    def hasten(self) -> None:
        """Begin with those of the first generation: whoever launches them will ask soon."""
        ...

    def launch(self, generation: int) -> AbstractContextManager[Hosts]: ...


class Pulse:
    """Asks hosts that are at work on something long whether they are alive: who is stopped does not answer."""

    def __init__(self, hosts: Hosts, heartbeat: float):
        self.hosts, self.heartbeat = hosts, heartbeat
        self.asked: dict[int, tuple[Any, float]] = {}

    def feel(self, hosts: Iterable[int]) -> None:
        """Raise `Lost` if one of these has been silent for too long."""
        for host in hosts:
            ticket, since = self.asked.get(host) or (self.hosts.ask(host, "doing"), time.monotonic())
            self.asked[host] = ticket, since
            if self.hosts.ready([ticket], 0.0):
                self.hosts.answer(ticket)
                del self.asked[host]
            elif time.monotonic() - since > self.heartbeat:
                raise Lost(host, f"has not answered for {self.heartbeat:g} s")


LATE, AT_LEAST = 4.0, 60.0
"""How much longer than another one a process may take to come up: so many times as long, and so many seconds."""


def later(seconds: float) -> float:
    """How long processes may take to come up, where others took so many seconds."""
    return seconds + max(LATE * seconds, AT_LEAST)


def ask_all(
    hosts: Hosts,
    arguments: Sequence[tuple[Any, ...]],
    method: str,
    patience: float,
    pulse: Pulse | None = None,
    *,
    alike: bool = False,
) -> list[Any]:
    """Ask every host, each with arguments of its own -> all answers. What one raised is raised here. Where it takes all
    of them `alike` long, nobody may answer much `later` than the first."""
    tickets = {host: hosts.ask(host, method, *each) for host, each in enumerate(arguments)}
    waiting, began = dict(tickets), time.monotonic()
    deadline = began + patience
    while waiting:
        done = hosts.ready(list(waiting.values()), max(0.0, min(1.0, deadline - time.monotonic())))
        for host in [host for host, ticket in waiting.items() if ticket in done]:
            answer = hosts.answer(waiting.pop(host))
            if isinstance(answer, Failure):
                raise answer.error()
            tickets[host] = answer
            if alike:
                deadline, alike = min(deadline, began + later(time.monotonic() - began)), False
        if pulse is not None:
            pulse.feel(waiting)
        if waiting and time.monotonic() > deadline:
            raise Lost(min(waiting), f"has not answered for {deadline - began:.3g} s (asked to {method})")
    return [tickets[host] for host in range(len(arguments))]
