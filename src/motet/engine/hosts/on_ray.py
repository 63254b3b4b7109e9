"""Hosts as Ray's actors: Ray places, starts, watches and ends their processes. Nothing else of motet knows Ray."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import ray
from ray import exceptions
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from motet.engine.hosts.cluster import Cluster
from motet.engine.hosts.host import Host
from motet.engine.hosts.reach import Lost, ask_all
from motet.engine.hosts.task import environment
from motet.errors import BadOption, MotetError, described

CALLS = 8
"""Calls that a host answers side by side."""
GONE = (
    exceptions.RayActorError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.ObjectLostError,
    exceptions.OutOfMemoryError,
)
TOKEN = secrets.token_hex(32)
"""What Ray asks for on this machine, where nobody else needs to know it. Ray keeps to the first one of a process."""
CLOSING = 10.0
"""Seconds that hosts have to close when a run is over."""


Started = tuple[Any, list[Any]]
"""A placement group, and an actor in each of its bundles."""


class NotEnoughNodes(BadOption):
    """The cluster has no room for the hosts."""


@contextmanager
def connected(cluster: Cluster) -> Iterator[RayLauncher]:
    """A Ray cluster: one that is there, or one of this machine that lives as long as the run."""
    if ray.is_initialized():
        if cluster.working_dir is not None:
            raise BadOption("Ray is connected already: working_dir belongs into its runtime_env, given to ray.init.")
        with closing(RayLauncher(cluster, local=False)) as launcher:
            yield launcher
        return
    before = os.environ.get("RAY_AUTH_TOKEN")
    if cluster.address is None and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", TOKEN)
    try:
        with warnings.catch_warnings():
            # Ray's own processes are forked only to become other programs at once, which JAX cannot know.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            with _signals_kept():
                _init(cluster)
        with closing(RayLauncher(cluster, local=cluster.address is None)) as launcher:
            yield launcher
    finally:
        ray.shutdown()
        if before is None:
            os.environ.pop("RAY_AUTH_TOKEN", None)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Whoever connects to Ray is made to end at once at a SIGTERM, and to write of it; a run saves itself first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # nor could Ray take them there
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python does not know of stays
                signal.signal(number, handler)


def _init(cluster: Cluster) -> None:
    sent = {"working_dir": str(cluster.working_dir)} if cluster.working_dir is not None else None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "runtime_env": sent}
    if cluster.address is None:
        cores = max(os.cpu_count() or 1, int(-(-cluster.cpus * cluster.hosts // 1)))
        gpus = int(-(-cluster.gpus * cluster.hosts // 1)) or None
        ray.init(address="local", num_cpus=cores, num_gpus=gpus, include_dashboard=False, **quiet)
        return
    try:
        _knock(cluster.address)
        ray.init(address=cluster.address, **quiet)
    except exceptions.AuthenticationError as error:
        raise BadOption(
            f"The Ray cluster at {cluster.address} does not let us in: {error}. Its token must be known here, in "
            "RAY_AUTH_TOKEN, in the file that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token (`ray get-auth-token` "
            "shows it there). A cluster without tokens needs RAY_AUTH_MODE=disabled."
        ) from None
    except (OSError, RuntimeError, ValueError, exceptions.RayError) as error:
        raise BadOption(
            f"There is no Ray cluster at {cluster.address!r}: {described(error)}. `ray start --head` starts one; its "
            "address is the head's, as 10.0.0.1:6379, and its token and Ray's version must be the same here."
        ) from None


def _knock(address: str) -> None:
    """Ray itself would try for minutes where nobody listens."""
    machine, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "/" not in machine:
        socket.create_connection((machine.strip("[]"), int(port)), timeout=10).close()


class _RayHost(Host):
    """A host as an actor of Ray."""

    def __init__(self, local: bool):
        super().__init__("127.0.0.1" if local else ray.util.get_node_ip_address())


class RayLauncher:
    """Starts the processes of a run, spread over the nodes that there are."""

    kind: type[Host] = _RayHost
    """What each process is."""

    def __init__(self, cluster: Cluster, local: bool):
        self.cluster, self.local = cluster, local
        self._early: Started | None = None
        """What was started before anybody asked for it."""

    def hasten(self) -> None:
        """Begin to start the processes of the first generation: they need seconds to come up, and no task for it."""
        self._early = self._started(hurry=False)

    def close(self) -> None:
        """What was started for nothing ends."""
        if self._early is not None:
            _end(*self._early)
            self._early = None

    @contextmanager
    def launch(self, generation: int) -> Iterator[RayHosts]:
        group, actors = self._reserved()
        hosts = RayHosts(actors)
        try:
            yield hosts
            with suppress(Lost):
                ask_all(hosts, [()] * self.cluster.hosts, "close", CLOSING)
        finally:
            _end(group, actors)

    def _bundle(self) -> dict[str, float]:
        return {"CPU": self.cluster.cpus, **({"GPU": self.cluster.gpus} if self.cluster.gpus else {})}

    def _started(self, hurry: bool) -> Started:
        """Ask for room for every host, and for their processes, which start as soon as there is room."""
        wanted = [self._bundle()] * self.cluster.hosts
        group = placement_group(wanted, strategy=strategy(_nodes(), wanted, hurry))
        return group, self._actors(group)

    def _reserved(self) -> Started:
        """Room for every host: on a node each, if as many have room in the first half of the time."""
        began, (early, self._early) = time.monotonic(), (self._early, None)
        deadline = began + self.cluster.wait
        while True:
            group, actors = early or self._started(hurry=time.monotonic() - began > self.cluster.wait / 2)
            # What nodes there are may change while we wait, and with them how to spread.
            if group.wait(max(1, min(5, deadline - time.monotonic()))):
                return group, actors
            early = _end(group, actors)
            if time.monotonic() >= deadline:
                raise self._too_few()

    def _too_few(self) -> NotEnoughNodes:
        asked = " and ".join(f"{amount:g} {what}" for what, amount in self._bundle().items())
        nodes = "\n".join(f"  - {node['NodeManagerAddress']}: {_resources(node)}" for node in _nodes())
        free = ray.available_resources()
        left = ", ".join(f"{free.get(what, 0):g} {what}" for what in self._bundle())
        return NotEnoughNodes(
            f"There is no room for the hosts, after {self.cluster.wait:g} s: {self.cluster.hosts} with {asked} each "
            f"were asked for. The cluster has {len(_nodes())} node(s), with {left} free in all:\n{nodes}\n"
            "Add nodes (`ray start --address=...`), ask for fewer hosts or CPUs, or wait for others to end."
        )

    def _actors(self, group: Any) -> list[Any]:
        sent: dict[str, Any] = {"env_vars": environment()}
        options = {
            "num_cpus": self.cluster.cpus,
            "num_gpus": self.cluster.gpus,
            "max_concurrency": CALLS,
            "max_restarts": 0,  # a process that begins anew knows nothing of the run
            "runtime_env": sent,
        }
        kind = ray.remote(self.kind)
        places = [PlacementGroupSchedulingStrategy(group, number) for number in range(self.cluster.hosts)]
        return [kind.options(**options, scheduling_strategy=place).remote(self.local) for place in places]


def _end(group: Any, actors: Sequence[Any]) -> None:
    """Nothing is left of them, and their room is free again."""
    for actor in actors:
        with suppress(Exception):
            ray.kill(actor)
    with suppress(Exception):
        remove_placement_group(group)


class RayHosts:
    """The actors of one generation."""

    def __init__(self, actors: Sequence[Any]):
        self.actors = list(actors)
        self._host: dict[Any, int] = {}

    def ask(self, host: int, method: str, *args: Any) -> Any:
        try:
            ticket = getattr(self.actors[host], method).remote(*args)
        except GONE as error:
            raise Lost(host, _why(error)) from None
        self._host[ticket] = host
        return ticket

    def ready(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        done, _ = ray.wait(list(tickets), num_returns=1, timeout=seconds)
        if done and len(tickets) > 1:  # and whoever else is ready too
            done, _ = ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        return done

    def answer(self, ticket: Any) -> Any:
        host = self._host.pop(ticket)
        try:
            return ray.get(ticket)
        except exceptions.LocalRayletDiedError as error:
            raise MotetError("Ray has ended on this machine, and with it the run.") from error
        except GONE as error:
            if "No module named 'motet'" in str(error):
                raise BadOption("A node of the cluster has no motet: install the same version on every node.") from None
            raise Lost(host, _why(error)) from None
        except exceptions.RuntimeEnvSetupError as error:
            raise BadOption(f"Ray could not prepare the process of host {host}: {error}") from None


def _why(error: BaseException) -> str:
    """Of all that Ray says of the end of a process, what tells why."""
    said = " ".join(str(error).split())
    found = re.search(r"exit detail: (.*?)\.? Some common causes", said) or re.search(r"is dead because (.*?)\.", said)
    return f"is gone: {found[1] if found else said[:300]}"


def strategy(nodes: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, float]], hurry: bool) -> str:
    """How to spread hosts over nodes: each on its own if so many are large enough, unless that has taken too long."""
    large = [node for node in nodes if all(node["Resources"].get(what, 0) >= n for what, n in wanted[0].items())]
    return "STRICT_SPREAD" if len(large) >= len(wanted) and not hurry else "SPREAD"


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _resources(node: dict[str, Any]) -> str:
    counts = {name: amount for name, amount in node["Resources"].items() if name in ("CPU", "GPU")}
    return ", ".join(f"{amount:g} {name}" for name, amount in counts.items()) or "no CPU"
