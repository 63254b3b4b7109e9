"""On which host each replica lies. Hosts are numbers here: nothing is asked of them.

Replicas lie over the hosts in blocks of the environment axis, the same blocks for every fragment: the rows that an
actor makes and those that a replica of another fragment works on are on one host wherever that can be. A fragment in
one piece lies on the first host, unless it names another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from motet.errors import BadOption
from motet.plan.plan import Fragment, Plan


def over(plan: Plan, hosts: int | None) -> Plan:
    """The plan for so many hosts; None: for as many as it says itself."""
    if hosts is None or plan.hosts == hosts:
        return plan
    if plan.hosts != 1:
        raise BadOption(f"The plan is for {plan.hosts} hosts, and {hosts} are asked for: make the two agree.")
    return replace(plan, hosts=hosts)


def hosts_of(plan: Plan, name: str) -> tuple[int, ...]:
    """The host of each replica of a fragment, for a plan without `problems`."""
    fragment = plan.fragments[name]
    if fragment.host is not None or fragment.cut.parts == 1:
        return (fragment.host or 0,) * fragment.replicas
    return tuple(replica * plan.hosts // fragment.replicas for replica in range(fragment.replicas))


def replicas_on(plan: Plan, name: str, host: int) -> range:
    """The replicas of a fragment that lie on one host: they follow each other."""
    found = [replica for replica, each in enumerate(hosts_of(plan, name)) if each == host]
    return range(found[0], found[-1] + 1) if found else range(0)


def most_devices(plan: Plan, name: str) -> int:
    """How many devices a fragment takes on the host where it takes most."""
    fragment, hosts = plan.fragments[name], hosts_of(plan, name)
    most = max(hosts.count(host) for host in set(hosts))
    return -(-most // fragment.per_device) * fragment.shards


def numbers(plan: Plan) -> Iterator[str]:
    """What is wrong with a plan's numbers of hosts."""
    if not _is_count(plan.hosts) or plan.hosts < 1:
        yield f"hosts must be a whole number of at least 1, got {plan.hosts!r}"
        return
    for name, fragment in plan.fragments.items():
        if fragment.host is not None and not (_is_count(fragment.host) and 0 <= fragment.host < plan.hosts):
            yield f"fragment {name!r}: host must be a number from 0 to {plan.hosts - 1}, got {fragment.host!r}"


def problems(plan: Plan) -> Iterator[str]:
    """Why a plan cannot lie over its hosts."""
    if plan.hosts == 1:
        return
    uneven = [line for name, fragment in plan.fragments.items() for line in _uneven(plan, name, fragment)]
    yield from uneven
    if uneven:
        return
    used = {host for name in plan.fragments for host in hosts_of(plan, name)}
    for host in sorted(set(range(plan.hosts)) - used):
        yield (
            f"nothing lies on host {host} of {plan.hosts}: fragments in one piece lie on the first unless they name "
            f"another. Use a preset with replicas, as coarse(actors={plan.hosts}), give a fragment host={host}, or "
            "lower hosts"
        )


def _uneven(plan: Plan, name: str, fragment: Fragment) -> Iterator[str]:
    if fragment.host is not None or fragment.cut.parts == 1 or fragment.replicas % plan.hosts == 0:
        return
    if fragment.shards > 1:
        yield (
            f"fragment {name!r}: {fragment.replicas} x {fragment.shards} shards would lie on several of {plan.hosts} "
            "hosts, and a program that spans hosts is not possible yet: keep the fragment on one with host=0"
        )
    else:
        yield (
            f"fragment {name!r}: {fragment.replicas} replicas do not divide by {plan.hosts} hosts; choose a number of "
            f"replicas that {plan.hosts} divides, or keep all on one host with host=0"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
