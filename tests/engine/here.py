"""A cluster that is no cluster: `motet.train` over hosts that are objects of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import motet
from motet.engine.hosts.reach import Launcher
from tests.engine.local_hosts import LocalHosts, LocalLauncher


@dataclass(frozen=True)
class Here(motet.Cluster):
    """Two hosts, whatever is said of the cluster. `on_launch` is told of each generation."""

    hosts: int = 2
    on_launch: Callable[[int, LocalHosts], None] = field(default=lambda generation, hosts: None)

    @contextmanager
    def connected(self) -> Iterator[Launcher]:
        yield LocalLauncher(self.hosts, self.on_launch)


def without_time(rows: Any) -> list[Any]:
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]
