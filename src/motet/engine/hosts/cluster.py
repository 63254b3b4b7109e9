"""Which hosts a run is to have. A value: nothing is started, and Ray is not needed, before a run begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from motet.errors import BadOption

if TYPE_CHECKING:
    from motet.engine.hosts.reach import Launcher


OWN = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""What Ray is to do unless somebody has said otherwise: ask for a token, tell nobody of it, leave accelerators alone.
It looks when it is imported."""


@dataclass(frozen=True)
class Cluster:
    """Hosts for a run, each a process that Ray starts, watches and ends."""

    hosts: int = 1
    """How many; the plan's fragments lie over them."""
    address: str | None = None
    """Where a Ray cluster runs, as "10.0.0.1:6379", or "auto" for one that this machine belongs to. None: Ray is
    started on this machine, and stopped at the end."""
    cpus: float = 1.0
    """What each host takes of a node's processors, as Ray counts them."""
    gpus: float = 0.0
    wait: float = 60.0
    """Seconds to wait for nodes that have room for the hosts, at the start and after one is lost."""
    heartbeat: float = 30.0
    """Seconds that a host may be silent before it is replaced."""
    cut_seconds: float = 5.0
    """How often the state to go back to after a loss is taken; less often where that would cost over 3% of the time."""
    recoveries: int = 5
    """How often in a row hosts may be lost without another such state between."""
    working_dir: str | Path | None = None
    """A folder that is sent to every host, for code of yours that is not installed there."""

    def __post_init__(self) -> None:
        if not isinstance(self.hosts, int) or isinstance(self.hosts, bool) or self.hosts < 1:
            raise BadOption(f"hosts must be a whole number of at least 1, got {self.hosts!r}")
        for name in ("cpus", "wait", "heartbeat", "cut_seconds"):
            if not getattr(self, name) > 0:
                raise BadOption(f"{name} must be above 0, got {getattr(self, name)!r}")
        if self.gpus < 0 or self.recoveries < 0:
            raise BadOption(f"gpus and recoveries must be at least 0, got {self.gpus!r} and {self.recoveries!r}")
        if self.working_dir is not None and not Path(self.working_dir).is_dir():
            raise BadOption(f"working_dir must be a folder, but there is none at {self.working_dir}")

    @contextmanager
    def connected(self) -> Iterator[Launcher]:
        """Inside, processes can be started."""
        missing = [name for name in ("ray", "zmq") if find_spec(name) is None]
        if missing:
            raise BadOption("Runs over hosts need Ray and ZeroMQ, which are not installed: pip install 'motet[ray]'")
        for name, value in OWN.items():
            os.environ.setdefault(name, value)
        from motet.engine.hosts.on_ray import connected

        with connected(self) as launcher:
            yield launcher
