"""Hosts that serve one run after the other: starting a process takes longer than a test's run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from motet.engine.hosts.cluster import Cluster
from motet.engine.hosts.on_ray import CLOSING, RayHosts, RayLauncher
from motet.engine.hosts.reach import Lost, ask_all


class Kept(RayLauncher):
    """Starts processes once."""

    def __init__(self, cluster: Cluster):
        super().__init__(cluster, local=False)
        self.group, self.actors = self._reserved()

    @contextmanager
    def launch(self, generation: int) -> Iterator[RayHosts]:
        hosts = RayHosts(self.actors)
        try:
            yield hosts
        finally:
            with suppress(Lost):
                ask_all(hosts, [()] * self.cluster.hosts, "close", CLOSING)
