"""On which host each replica lies. Hosts are numbers here: nothing is asked of them.

Replicas and shards lie over the hosts in blocks of the environment axis, the same blocks for every fragment: the rows
that an actor makes and those that another fragment works on are on one host wherever that can be. A fragment in one
piece lies on the first host, unless it names another.

A replica whose shards span hosts has a *member* on each: a worker with the block of environments of that host, and with
the same copy as the others of all that has no environment axis. Together they run one program. Any other replica is its
only member. So messages go from member to member, and what crosses inside of a program are collectives.
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


def together(plan: Plan) -> Plan:
    """The plan with all of it on one host, to be run in one process."""
    if plan.hosts == 1:
        return plan
    return replace(plan, hosts=1, fragments={name: replace(each, host=None) for name, each in plan.fragments.items()})


def span(plan: Plan, name: str) -> int:
    """Over how many hosts each replica of a fragment lies."""
    fragment = plan.fragments[name]
    return plan.hosts if fragment.replicas == 1 and fragment.shards > 1 and fragment.host is None else 1


def spanning(plan: Plan) -> list[str]:
    """The fragments whose programs span hosts."""
    return [name for name in plan.fragments if span(plan, name) > 1]


def members(plan: Plan, name: str) -> int:
    """How many workers a fragment has, on all hosts together."""
    return plan.fragments[name].replicas * span(plan, name)


def shards_of(plan: Plan, name: str) -> int:
    """How many devices each member of a fragment has."""
    return -(-plan.fragments[name].shards // span(plan, name))


def hosts_of(plan: Plan, name: str) -> tuple[int, ...]:
    """The host of each member of a fragment, for a plan without `problems`."""
    fragment, count = plan.fragments[name], members(plan, name)
    if fragment.host is not None or fragment.cut.parts == 1:
        return (fragment.host or 0,) * count
    return tuple(member * plan.hosts // count for member in range(count))


def members_on(plan: Plan, name: str, host: int) -> range:
    """The members of a fragment that lie on one host: they follow each other."""
    found = [member for member, each in enumerate(hosts_of(plan, name)) if each == host]
    return range(found[0], found[-1] + 1) if found else range(0)


def most_devices(plan: Plan, name: str) -> int:
    """How many devices a fragment takes on the host where it takes most."""
    fragment, hosts = plan.fragments[name], hosts_of(plan, name)
    most = max(hosts.count(host) for host in set(hosts))
    return -(-most // fragment.per_device) * shards_of(plan, name)


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
            f"another. Use a preset with replicas or shards, as coarse(actors={plan.hosts}) or "
            f"anakin(shards={plan.hosts}), give a fragment host={host}, or lower hosts"
        )


def _uneven(plan: Plan, name: str, fragment: Fragment) -> Iterator[str]:
    what = "shards" if span(plan, name) > 1 else "replicas"
    count = getattr(fragment, what)
    if fragment.host is None and fragment.cut.parts > 1 and count % plan.hosts:
        yield (
            f"fragment {name!r}: {count} {what} do not divide by {plan.hosts} hosts; choose a number of {what} that "
            f"{plan.hosts} divides, or keep all on one host with host=0"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
