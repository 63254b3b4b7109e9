"""On which devices each replica lies. Devices are numbers here: nothing is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from motet.plan.hosts import hosts_of, most_devices, numbers, shards_of
from motet.plan.plan import OUTSIDE, Fragment, Plan


class Spot(NamedTuple):
    """Where one replica lies, or a member of it."""

    platform: str
    devices: tuple[int, ...]
    """Their numbers among the devices of the platform."""
    store: str = ""
    """What else holds a replay there: "host" or an OpenCL device; empty: nothing."""
    host: int = 0
    """Which host's devices they are."""


def locate(plan: Plan, devices: Mapping[str, int]) -> dict[str, list[Spot]]:
    """Fragment -> the spot of each member, for a plan that `check` accepts.

    `devices` counts the devices of each platform, the usual one first, on each host. Fragments without a place take its
    devices in turn; a place names its platform, so that actors may be on "cpu:0" and the learner on "cuda:0".
    """
    usual = next(iter(devices))
    spots: dict[str, list[Spot]] = {name: [] for name in plan.fragments}
    turns = [0] * plan.hosts
    for name, fragment in plan.fragments.items():
        hosts, shards = hosts_of(plan, name), shards_of(plan, name)
        for host in dict.fromkeys(hosts):
            if fragment.outside:
                # What is drawn there comes from JAX's random numbers, computed on the host's processor if JAX has it.
                spots[name].append(Spot("cpu" if "cpu" in devices else usual, (0,), str(fragment.place), host))
                continue
            platform, first = parse(fragment.place) or (usual, turns[host])
            count = hosts.count(host)
            spots[name] += [
                Spot(platform, tuple((start + shard) % devices[platform] for shard in range(shards)), "", host)
                for start in (first + each // fragment.per_device * shards for each in range(count))
            ]
            if fragment.place is None:
                turns[host] += -(-count // fragment.per_device) * shards
    return spots


def platforms(plan: Plan, usual: str) -> list[str]:
    """The platforms whose devices a plan needs, the usual one first."""
    named = [place[0] for fragment in plan.fragments.values() if (place := parse(fragment.place))]
    outside = ["cpu"] if any(fragment.outside for fragment in plan.fragments.values()) else []
    return list(dict.fromkeys([usual, *named, *outside]))


def parse(place: object) -> tuple[str, int] | None:
    """The platform and number of a place such as "cpu:0"; None for no place, or one that is no device of JAX."""
    if not isinstance(place, str):
        return None
    platform, _, index = place.partition(":")
    known = platform and platform not in OUTSIDE and index.isdigit() and len(index) < 10
    return (platform, int(index)) if known else None


def problems(plan: Plan, devices: Mapping[str, int]) -> Iterator[str]:
    """Which fragments want devices that are not there, on a host that has so many."""
    usual = next(iter(devices))
    for name, fragment in plan.fragments.items() if not list(numbers(plan)) else ():
        if fragment.outside or not _is_counted(fragment):
            continue
        place = parse(fragment.place)
        platform = place[0] if place else usual
        if platform not in devices:
            found = " and ".join(repr(each) for each in devices)
            yield f"fragment {name!r} is placed on {fragment.place!r}, but devices here are of the kind {found}"
            continue
        count = devices[platform]
        if place and place[1] + most_devices(plan, name) > count:
            last = place[1] + most_devices(plan, name) - 1
            there = f"there are {count} {_advice(platform, last + 1)}"
            yield f"fragment {name!r} takes devices {place[1]} to {last}, but {there}"
        elif not place and (shards := shards_of(plan, name)) > count:
            there = f"there are {count} {_advice(platform, shards)}"
            yield f"fragment {name!r} needs {shards} devices, but {there}"


def _is_counted(fragment: Fragment) -> bool:
    counts = (fragment.shards, fragment.replicas, fragment.per_device)
    return all(isinstance(count, int) and count > 0 for count in counts)


def _advice(platform: str, count: int) -> str:
    if platform != "cpu":
        return f"of the kind {platform!r}"
    return f"(on a CPU, ask for more with --devices {count} or motet.virtual_devices({count}))"
