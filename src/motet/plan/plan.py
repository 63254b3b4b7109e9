"""A plan: which fragment runs which nodes, where, in how many copies, and how far each link may lag.

A plan is a frozen value. Making one touches no device; it goes to JSON and back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

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
    per_device: int = 1
    """Replicas that share a device: while one waits for its environments, another uses it."""
    workers: int = 0
    """Processes in which each replica steps its host environments; 0: its own thread."""
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "fragments", MappingProxyType(dict(self.fragments)))
        object.__setattr__(self, "links", MappingProxyType(dict(self.links)))
        object.__setattr__(self, "per_replica", tuple(self.per_replica))

    def __hash__(self) -> int:
        return hash(self.to_json())

    def cuts(self) -> tuple[Cut, ...]:
        """The ways in which this plan cuts the environment axis; numbers that make no sense are left to `check`."""
        cuts = dict.fromkeys(fragment.cut for fragment in self.fragments.values())
        return tuple(cut for cut in cuts if all(isinstance(count, int) and count > 0 for count in cut))

    def homes(self, graph: Graph) -> dict[str, str]:
        """Node -> fragment, for a plan that `check` accepts."""
        sites = {site: found[0] for site, found in self.claims(graph).items() if found}
        return {node.name: sites[node.site] for node in graph.nodes()}

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
            },
            indent=2,
        )

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote; every mistake in it is reported at once."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadPlan([f"the file is not JSON: {error}"]) from None
        problems = list(_problems(data))
        if problems:
            raise BadPlan(problems)
        return Plan(
            fragments={
                name: Fragment(**{**value, "nodes": tuple(value["nodes"])}) for name, value in data["fragments"].items()
            },
            links={name: Link(**value) for name, value in data.get("links", {}).items()},
            per_replica=tuple(data.get("per_replica", ())),
            name=data.get("name", "custom"),
        )


def _problems(data: Any) -> list[str]:
    """Whatever in decoded JSON is not of a plan's form."""
    if not isinstance(data, dict) or not isinstance(data.get("fragments"), dict):
        return ['a plan is an object with the key "fragments", an object of fragments by name']
    problems = [f"unknown key {key!r}; a plan has {_names(Plan)}" for key in data if key not in _names(Plan)]
    for name, value in data["fragments"].items():
        problems += _unknown(f"fragment {name!r}", value, Fragment)
        if isinstance(value, dict) and not _is_names(value.get("nodes")):
            problems.append(f'fragment {name!r} needs "nodes", a list of node names, kinds or "*"')
    links, names = data.get("links", {}), data.get("per_replica", [])
    if not isinstance(links, dict):
        problems.append(f'"links" must be an object of links by name, got {links!r}')
    if names and not _is_names(names):
        problems.append(f'"per_replica" must be a list of node names, got {names!r}')
    for name, value in links.items() if isinstance(links, dict) else ():
        problems += _unknown(f"link {name!r}", value, Link)
    return problems


def _unknown(where: str, value: Any, kind: type) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where} must be an object with {_names(kind)}, got {value!r}"]
    return [f"{where} has the unknown key {key!r}; it takes {_names(kind)}" for key in value if key not in _names(kind)]


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _names(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]
