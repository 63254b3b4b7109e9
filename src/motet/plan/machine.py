"""A machine as a value: hosts with cores and devices, and what lies between them.

All hosts are alike. A machine may be here, in a catalogue, or in somebody's head: nothing is asked of a device. It is
written as YAML (of which JSON is a part), and every mistake in such a file is found at once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from motet.errors import BadMachine

KINDS = ("cpu", "gpu", "tpu", "fpga")
"""What a device may be. The cores of a host together are its one device of the kind "cpu"."""
CONNECTIONS = ("process", "host", "devices", "network")
"""Between threads of a process; between a host's memory and its devices; between its devices; between hosts."""
PLATFORMS = {"cuda": "gpu", "rocm": "gpu"}
"""JAX's names of platforms that are a kind under another name."""


def kind_named(platform: str) -> str:
    """The kind of a platform's devices."""
    return PLATFORMS.get(platform, platform)


@dataclass(frozen=True)
class Device:
    """A kind of device, and how many of it each host has."""

    kind: str
    name: str
    memory: float
    """Bytes of each."""
    peak: float
    """FLOP/s of each, in the precision that training uses; of a "cpu": of one core."""
    bandwidth: float
    """Bytes/s between it and its memory."""
    watts: float
    """While it computes; of a "cpu": of one core."""
    count: int = 1
    """On each host."""
    idle_watts: float = 0.0
    """While it does not."""
    latency: float = 0.0
    """Seconds that an operation takes at least, however small it is."""
    launch: float = 0.0
    """Seconds from asking for a program to its first operation."""
    efficiency: float = 1.0
    """Which share of its peak large products of matrices reach."""


@dataclass(frozen=True)
class Connection:
    """What lies between two places."""

    latency: float
    """Seconds that an empty message takes."""
    bandwidth: float
    """Bytes/s."""

    def seconds(self, nbytes: float) -> float:
        """How long a message takes."""
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Machine:
    """Equal hosts, and what lies between them."""

    name: str
    cores: int
    """Of each host."""
    memory: float
    """Bytes of each host."""
    devices: tuple[Device, ...]
    """Of each host. JAX's usual device comes first."""
    connections: Mapping[str, Connection] = field(default_factory=dict)
    hosts: int = 1
    idle_watts: float = 0.0
    """What a host draws when it does nothing, its devices left aside."""
    source: str = ""
    """Where these numbers are from."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "connections", MappingProxyType({**ASSUMED, **self.connections}))

    def __hash__(self) -> int:
        return hash(self.to_text())

    def device(self, platform: str) -> Device | None:
        """The device of a platform, by its kind or JAX's word for it."""
        return next((each for each in self.devices if each.kind == kind_named(platform)), None)

    @property
    def counts(self) -> dict[str, int]:
        """How many devices there are of each kind, on all hosts, the usual one first."""
        return {each.kind: each.count * self.hosts for each in self.devices if each.kind != "fpga"}

    def with_devices(self, count: int) -> Machine:
        """The same machine with so many of its usual devices, on as many hosts as they take."""
        usual, *rest = self.devices
        per_host = min(count, usual.count)
        if count < 1 or count % per_host:
            raise BadMachine([f"{self.name} has {usual.count} devices a host: {count} do not fill whole hosts"])
        devices = (replace(usual, count=per_host), *rest)
        return replace(self, devices=devices, hosts=count // per_host)

    def to_text(self) -> str:
        """As YAML, which `from_text` reads."""
        import yaml

        data = {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "devices": [asdict(each) for each in self.devices],
            "connections": {name: asdict(each) for name, each in self.connections.items()},
        }
        return yaml.safe_dump(data, sort_keys=False)

    @staticmethod
    def from_text(text: str) -> Machine:
        """Read YAML or JSON; every mistake in it is reported at once."""
        import yaml

        try:
            data = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise BadMachine([f"the file is not YAML: {' '.join(str(error).split())}"]) from None
        problems = list(_problems(data))
        if problems:
            raise BadMachine(problems)
        return Machine(
            **{
                **_numbers(data, Machine),
                "devices": tuple(Device(**_numbers(each, Device)) for each in data["devices"]),
                "connections": {
                    name: Connection(**_numbers(each, Connection))
                    for name, each in (data.get("connections") or {}).items()
                },
            }
        )


ASSUMED = {
    "process": Connection(10e-6, 8e9),
    "host": Connection(10e-6, 12e9),
    "devices": Connection(10e-6, 12e9),
    "network": Connection(50e-6, 1.25e9),
}
"""What is taken where a description leaves a connection out: a copy in memory, PCIe 3, and Ethernet of 10 Gbit/s."""

ABOVE_ZERO = {"cores", "memory", "hosts", "peak", "bandwidth", "count", "efficiency"}
WHOLE = {"cores", "hosts", "count"}
WORDS = {"name", "kind", "source"}


def _problems(data: Any) -> list[str]:
    """Whatever in decoded YAML is not a machine."""
    if not isinstance(data, dict):
        return [f"a machine is a mapping with {', '.join(_needed(Machine))}, got {data!r}"]
    found = _object_problems("the machine", data, Machine, leave=("devices", "connections"))
    devices, connections = data.get("devices"), data.get("connections") or {}
    if "devices" in data and not (isinstance(devices, list) and devices):
        found.append(f"devices must be a list of at least one device, got {devices!r}")
    seen: list[Any] = []
    for number, each in enumerate(devices if isinstance(devices, list) else ()):
        where = f"device {number + 1}"
        found += _object_problems(where, each, Device)
        kind = each.get("kind") if isinstance(each, dict) else None
        if isinstance(kind, str) and kind not in KINDS:
            found.append(f"{where} is of the unknown kind {kind!r}; kinds are {', '.join(KINDS)}{_near(kind, KINDS)}")
        found += (
            [f"{where} is of the kind {kind!r}, as one before: say how many with its count"] if kind in seen else []
        )
        seen.append(kind)
    if not isinstance(connections, dict):
        return [*found, f"connections must be a mapping of {', '.join(CONNECTIONS)}, got {connections!r}"]
    for name, each in connections.items():
        if name not in CONNECTIONS:
            known = ", ".join(CONNECTIONS)
            found.append(f"there is no connection {name!r}; there are {known}{_near(str(name), CONNECTIONS)}")
        found += _object_problems(f"connection {name!r}", each, Connection)
    return found


def _object_problems(where: str, data: Any, kind: type, leave: tuple[str, ...] = ()) -> list[str]:
    if not isinstance(data, dict):
        return [f"{where} must be a mapping with {', '.join(_needed(kind))}, got {data!r}"]
    known = [each.name for each in fields(kind)]
    found = [f"{where} lacks {name!r}" for name in _needed(kind) if name not in data]
    found += [f"{where} has the unknown key {key!r}{_near(str(key), known)}" for key in data if key not in known]
    for name in known:
        if name in data and name not in leave:
            found += _value_problems(where, name, data[name])
    return found


def _value_problems(where: str, name: str, value: Any) -> list[str]:
    if name in WORDS:
        return [] if isinstance(value, str) else [f"{where}: {name} must be text, got {value!r}"]
    number = _number(value)
    wanted = "a whole number of at least 1" if name in WHOLE else "above 0" if name in ABOVE_ZERO else "at least 0"
    if number is None or not math.isfinite(number):
        return [f"{where}: {name} must be a number {wanted}, got {value!r}"]
    low = number < 1 if name in WHOLE else number <= 0 if name in ABOVE_ZERO else number < 0
    broken = name in WHOLE and number != int(number)
    return [f"{where}: {name} must be {wanted}, got {value!r}"] if low or broken else []


def _number(value: Any) -> float | None:
    """YAML takes 5e9 for text, which people do not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _numbers(data: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """What was found to be right, as numbers where it is to be numbers."""
    plain = {name: value for name, value in data.items() if name not in ("devices", "connections")}
    return {
        name: value if name in WORDS else int(float(value)) if name in WHOLE else float(value)
        for name, value in plain.items()
    }


def _needed(kind: type) -> list[str]:
    return [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]


def _near(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
