"""A plan: which fragment runs which nodes, where, in how many copies, and how far each link may lag.

A plan is a frozen value. Making one touches no device; it goes to JSON and back unchanged.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal
from zlib import crc32

from motet.errors import BadPlan
from motet.flow.graph import Cut, Graph

REST = "*"
"""In a fragment's nodes: every node that no other fragment names."""

Lag = int | Literal["latest"]
OUTSIDE = ("host", "opencl")
"""Places that are no devices of JAX."""


@dataclass(frozen=True, repr=False)
class Fragment:
    """A part of the loop that runs in one place."""

    nodes: tuple[str, ...]
    """Names or kinds of nodes, or "*" for all that no other fragment names."""
    replicas: int = 1
    """Independent copies, each with its own share of the environments."""
    shards: int = 1
    """Devices of one SPMD program; means over the batch are collectives."""
    place: str | None = None
    """The first device, as "cpu:0"; the following replicas and shards take the next ones. None: any. A replay may
    also lie in the host's memory, "host", or on an OpenCL device, "opencl:0"."""
    host: int | None = None
    """The number of the host that all of it lies on, counted from 0. None: its replicas, or the shards of its only
    replica, lie over all hosts of the plan in blocks, and a fragment in one piece on the first."""
    per_device: int = 1
    """Replicas that share a device: while one waits for its environments, another uses it."""
    workers: int = 0
    """Processes in which each replica steps its host environments, on each host if it spans several; 0: its own
    thread."""
    first_ready: bool = False
    """True: the replicas of a device share a thread, which goes on with whichever's environments are ready first."""
    inside: bool | None = None
    """Whether its compiled programs ask host environments themselves, instead of ending before each step (on a CPU).
    None: if it has one replica alone."""
    fused: bool = False
    """True: all of it must be one compiled program, which no host environment can be part of."""

    def __repr__(self) -> str:
        """What it says of itself, without what it leaves at the default."""
        said = [(each.name, getattr(self, each.name)) for each in fields(self)]
        defaults = {each.name: each.default for each in fields(self)}
        return f"Fragment({', '.join(f'{name}={value!r}' for name, value in said if value != defaults[name])})"

    @property
    def cut(self) -> Cut:
        return Cut(self.replicas * self.shards, self.shards)

    @property
    def outside(self) -> bool:
        """Whether it runs outside of XLA, as a replay may."""
        return isinstance(self.place, str) and self.place.partition(":")[0] in OUTSIDE

    @property
    def devices(self) -> int:
        return -(-self.replicas // self.per_device) * self.shards


@dataclass(frozen=True)
class Link:
    """How the values of one name travel between fragments."""

    lag: Lag = 0
    """0: lockstep. k: the reader sees the value of exactly k iterations earlier. "latest": the newest there is,
    which is the one mode that two runs need not repeat."""


@dataclass(frozen=True)
class Plan:
    """How a graph is cut and where its parts run."""

    fragments: Mapping[str, Fragment]
    links: Mapping[str, Link] = field(default_factory=dict)
    per_replica: tuple[str, ...] = ()
    """Nodes whose statistics may be taken over one replica's share of the batch."""
    name: str = "custom"
    hosts: int = 1
    """How many hosts, each a process with devices of its own, the replicas lie over (see `motet.plan.hosts`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fragments", MappingProxyType(dict(self.fragments)))
        object.__setattr__(self, "links", MappingProxyType(dict(self.links)))
        object.__setattr__(self, "per_replica", tuple(self.per_replica))

    @cached_property
    def _hash(self) -> int:
        """The same in every process; plans are compared and looked up by the thousand while one is chosen."""
        return crc32(self.to_json().encode())

    def __hash__(self) -> int:
        return self._hash

    def cuts(self) -> tuple[Cut, ...]:
        """The ways in which this plan cuts the environment axis; numbers that make no sense are left to `check`."""
        whole = [each for each in self.fragments.values() if all(map(_counts, (each.replicas, each.shards)))]
        return tuple(dict.fromkeys(fragment.cut for fragment in whole))

    def homes(self, graph: Graph) -> dict[str, str]:
        """Node -> fragment, for a plan that `check` accepts."""
        sites = {site: found[0] for site, found in self.claims(graph).items() if found}
        return {node.name: sites[node.site] for node in graph.nodes()}

    def learner(self, graph: Graph) -> str:
        """The fragment that learns; empty, if the loop has no learner."""
        homes, state = self.homes(graph), graph.roles.learner
        return next((homes[node.name] for node in reversed(graph.nodes()) if state in node.writes), "")

    def claims(self, graph: Graph) -> dict[str, list[str]]:
        """Site -> every fragment that claims it: by name before kind, by kind before "*"."""
        claims: dict[str, list[str]] = {}
        for site, node in graph.sites().items():
            for wanted in (site, node.kind, REST):
                claims[site] = [name for name, fragment in self.fragments.items() if wanted in fragment.nodes]
                if claims[site]:
                    break
        return claims

    def to_json(self) -> str:
        return json.dumps(
            {
                "name": self.name,
                "fragments": {name: asdict(fragment) for name, fragment in self.fragments.items()},
                "links": {name: asdict(link) for name, link in self.links.items()},
                "per_replica": list(self.per_replica),
                "hosts": self.hosts,
            },
            indent=2,
        )

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote; every mistake in it is reported at once."""
        plan, problems = Plan.read(text)
        if plan is None or problems:
            raise BadPlan(problems)
        return plan

    @staticmethod
    def read(text: str) -> tuple[Plan | None, list[str]]:
        """Read what somebody wrote by hand -> the plan without the keys that nobody knows, if it is one otherwise, and
        every mistake."""
        try:
            data = json.loads(text)
        except RecursionError:
            return None, ["the file is damaged: it is nested too deeply"]
        except ValueError as error:
            return None, [f"the file is not JSON: {error}"]
        problems = list(_problems(data))
        if problems:
            return None, [*_all_unknown(data), *problems]
        plan = Plan(
            fragments={
                name: Fragment(**{**_known(value, Fragment), "nodes": tuple(value["nodes"])})
                for name, value in data["fragments"].items()
            },
            links={name: Link(**_known(value, Link)) for name, value in data.get("links", {}).items()},
            per_replica=tuple(data.get("per_replica", ())),
            name=data.get("name", "custom"),
            hosts=data.get("hosts", 1),
        )
        return plan, _all_unknown(data)


def _problems(data: Any) -> list[str]:
    """Whatever in decoded JSON is not of a plan's form."""
    if not isinstance(data, dict) or not isinstance(data.get("fragments"), dict):
        return ['a plan is an object with the key "fragments", an object of fragments by name']
    problems = []
    for name, value in data["fragments"].items():
        if not isinstance(value, dict):
            problems.append(f"fragment {name!r} must be an object with {_names(Fragment)}, got {value!r}")
        elif not _is_names(value.get("nodes")):
            problems.append(f'fragment {name!r} needs "nodes", a list of node names, kinds or "*"')
    links, names = data.get("links", {}), data.get("per_replica", [])
    if not isinstance(links, dict):
        problems.append(f'"links" must be an object of links by name, got {links!r}')
    if names and not _is_names(names):
        problems.append(f'"per_replica" must be a list of node names, got {names!r}')
    for name, value in links.items() if isinstance(links, dict) else ():
        if not isinstance(value, dict):
            problems.append(f"link {name!r} must be an object with {_names(Link)}, got {value!r}")
    return problems


def _all_unknown(data: Any) -> list[str]:
    """Every key of decoded JSON that nobody knows."""
    if not isinstance(data, dict):
        return []
    found = _unknown("the plan", data, Plan)
    for plural, kind in (("fragments", Fragment), ("links", Link)):
        values = data.get(plural)
        for name, value in values.items() if isinstance(values, dict) else ():
            found += _unknown(f"{plural[:-1]} {name!r}", value, kind)
    return found


def _unknown(where: str, value: Any, kind: type) -> list[str]:
    keys = [key for key in value if key not in _names(kind)] if isinstance(value, dict) else []
    return [f"{where} has the unknown key {key!r}; {_meant(key, kind)}" for key in keys]


def _meant(key: str, kind: type) -> str:
    near = difflib.get_close_matches(key, _names(kind), 1)
    return f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(_names(kind))}"


def _known(value: dict[str, Any], kind: type) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key in _names(kind)}


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _names(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]
