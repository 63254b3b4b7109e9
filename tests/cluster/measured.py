"""Hosts that say how much went from one to another inside of XLA, as the kernel counts it."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from motet.engine.hosts.on_ray import RayHosts, _RayHost
from motet.engine.hosts.reach import ask_all
from tests.cluster.kept import Kept

Ends = tuple[tuple[str, int], tuple[str, int]]
ACKED = struct.Struct("120xQ")
"""Where `tcp_info` of Linux has the bytes that have come to the other end."""


class MeasuredHost(_RayHost):
    """A host that knows its connections."""

    def join(self, index: int, address: str, count: int) -> Any:
        self.met = int(address.rpartition(":")[2])
        return super().join(index, address, count)

    def sent(self) -> dict[Ends, int]:
        """What has gone over every connection of this process, but those to the place where all meet."""
        found: dict[Ends, int] = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    continue
                with socket.socket(fileno=os.dup(int(name))) as each:
                    if each.type != socket.SOCK_STREAM or each.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    ends = each.getsockname()[:2], each.getpeername()[:2]
                    info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKED.size)
            except OSError:
                continue
            if self.met not in (ends[0][1], ends[1][1]):
                found[ends] = ACKED.unpack(info)[0]
        return found


class Measured(Kept):
    """Keeps such hosts."""

    kind = MeasuredHost

    def crossed(self) -> dict[tuple[int, int], int]:
        """From which host to which -> the bytes until now."""
        found = dict(enumerate(ask_all(RayHosts(self.actors), [()] * self.cluster.hosts, "sent", 30)))
        owner = {ends[0]: host for host, sent in found.items() for ends in sent}
        total: dict[tuple[int, int], int] = {}
        for host, sent in found.items():
            for (_, peer), count in sent.items():
                if owner.get(peer, host) != host:
                    total[host, owner[peer]] = total.get((host, owner[peer]), 0) + count
        return total
