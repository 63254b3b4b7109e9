"""On which host and device of a machine each replica of a plan lies. The machine may be anywhere.

On one host it is as `places.locate` has it. Over several hosts replicas lie in blocks of the environment axis, the same
blocks for every fragment, so that what the actors of a host send stays on that host where the learner's shards do. A
fragment of one replica lies on the first host, unless its shards fill all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from motet.plan.machine import PLATFORMS, Machine, kind_named
from motet.plan.places import locate, parse
from motet.plan.plan import Fragment, Plan


class Seat(NamedTuple):
    """Where one replica lies."""

    host: int
    kind: str
    """Of its devices."""
    devices: tuple[int, ...]
    """Their numbers on the host; of shards over all hosts, those on each."""
    everywhere: bool = False
    """Whether its shards lie on all hosts."""
    outside: str = ""
    """What holds a replay there that is no device of JAX."""


def spread(plan: Plan, machine: Machine) -> dict[str, list[Seat]]:
    """Fragment -> the seat of each replica."""
    counts = {each.kind: each.count for each in machine.devices if each.kind != "fpga"}
    if machine.hosts == 1:
        aliases = {**counts, **{alias: counts[kind] for alias, kind in PLATFORMS.items() if kind in counts}}
        return {
            name: [Seat(0, kind_named(each.platform), each.devices, False, each.store) for each in spots]
            for name, spots in locate(plan, aliases).items()
        }
    turn = dict.fromkeys(range(machine.hosts), 0)
    return {name: _seats(each, machine.hosts, counts, turn) for name, each in plan.fragments.items()}


def kind_of(fragment: Fragment, usual: str) -> str:
    """The kind of a fragment's devices: that of its place, or the usual one."""
    place = parse(fragment.place)
    return kind_named(place[0]) if place else usual


def _seats(fragment: Fragment, hosts: int, counts: Mapping[str, int], turn: dict[int, int]) -> list[Seat]:
    kind = kind_of(fragment, next(iter(counts)))
    if fragment.replicas == 1 and fragment.shards > 1 and fragment.shards % hosts == 0:
        each = fragment.shards // hosts
        devices = tuple((turn[0] + number) % counts[kind] for number in range(each))
        for host in turn:
            turn[host] += each
        return [Seat(0, kind, devices, everywhere=True)]
    seats, here = [], dict.fromkeys(range(hosts), 0)
    for replica in range(fragment.replicas):
        host = replica * hosts // fragment.replicas
        first = turn[host] + here[host] // fragment.per_device * fragment.shards
        devices = tuple((first + shard) % counts[kind] for shard in range(fragment.shards))
        seats.append(Seat(host, kind, devices, outside=str(fragment.place) if fragment.outside else ""))
        here[host] += 1
    for host, count in here.items():
        turn[host] += -(-count // fragment.per_device) * fragment.shards
    return seats


def alike(seats: Mapping[str, list[Seat]], hosts: int) -> dict[int, int]:
    """The hosts that stand for all -> for how many each stands, itself included.

    Two hosts are alike if the same replicas lie on the same devices of both. What is alone, such as a learner on the
    first host, makes its host another.
    """
    pictures: dict[int, list[object]] = {host: [] for host in range(hosts)}
    for name, found in seats.items():
        for seat in found:
            pictures[seat.host].append((name, seat.kind, seat.devices, seat.outside))
    groups: dict[tuple[object, ...], list[int]] = {}
    lonely = {seat.host for found in seats.values() if len(found) == 1 for seat in found if not seat.everywhere}
    whole = {id(each) for found in seats.values() for each in found if each.everywhere}
    for host, picture in pictures.items():
        spanning = [name for name, found in seats.items() if any(id(each) in whole for each in found)]
        plain = [each for each in picture if each[0] not in spanning]  # type: ignore[index]
        groups.setdefault((host if host in lonely else -1, *plain), []).append(host)
    return {members[0]: len(members) for members in groups.values()}
