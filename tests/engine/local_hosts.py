"""Hosts that are no processes: the driver and the hosts of a run in one, to see what they say to each other."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from motet.engine.hosts.host import Host
from motet.engine.hosts.reach import Lost


class LocalHosts:
    """Calls methods of hosts in threads. `killed` are those that do not answer any more."""

    def __init__(self, hosts: Sequence[Host]):
        self.hosts, self.killed = list(hosts), dict[int, str]()
        self.pool = concurrent.futures.ThreadPoolExecutor(8 * len(hosts))

    def ask(self, host: int, method: str, *args: Any) -> Any:
        ticket = self.pool.submit(getattr(self.hosts[host], method), *args)
        ticket.host = host  # type: ignore[attr-defined]
        return ticket

    def ready(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        dead = [ticket for ticket in tickets if ticket.host in self.killed]
        return dead or list(concurrent.futures.wait(tickets, seconds, concurrent.futures.FIRST_COMPLETED).done)

    def answer(self, ticket: Any) -> Any:
        if ticket.host in self.killed:
            raise Lost(ticket.host, self.killed[ticket.host])
        return ticket.result()

    def kill(self, host: int, why: str = "was killed by a test") -> None:
        self.killed[host] = why
        self.hosts[host].stop()


class LocalLauncher:
    """Makes them. `on_launch` is told of each generation."""

    def __init__(self, count: int, on_launch: Callable[[int, LocalHosts], None] = lambda generation, hosts: None):
        self.count, self.on_launch = count, on_launch

    @contextmanager
    def launch(self, generation: int) -> Iterator[LocalHosts]:
        hosts = LocalHosts([Host() for _ in range(self.count)])
        self.on_launch(generation, hosts)
        try:
            yield hosts
        finally:
            for host in hosts.hosts:
                host.close()
            hosts.pool.shutdown()
