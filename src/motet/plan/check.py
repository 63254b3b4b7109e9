"""Whether a plan fits a graph and a machine. Every violation is found before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from types import NoneType

from motet.errors import BadPlan
from motet.flow.graph import Graph, written
from motet.plan import check_batches, check_links, hosts, places
from motet.plan.plan import OUTSIDE, REST, Plan
from motet.plan.project import Ownership
from motet.plan.schedule import why_outside

Devices = int | Mapping[str, int]
"""How many devices there are, or how many of each platform, the usual one first."""


def check(graph: Graph, plan: Plan, devices: Devices | None = None, platform: str = "cpu") -> None:
    """Raise `BadPlan` with all violations, each naming the node, edge or fragment and what to change."""
    found = violations(graph, plan, devices, platform)
    if found:
        raise BadPlan(found)


def violations(
    graph: Graph, plan: Plan, devices: Devices | None = None, platform: str = "cpu", *, traced: bool = True
) -> list[str]:
    """Everything that keeps `plan` from running `graph`; without `devices`, places are not looked at. With `traced`
    false it may be cut in ways that the graph was not traced for: whether a plan fits does not depend on it."""
    found = [*numbers(plan), *_claims(graph, plan)]
    if found:  # the rest needs to know where each node is
        return [*found, *_places(plan, devices, platform)]
    owned = Ownership(graph, plan)
    return [
        *_writers(graph, owned),
        *_replicated_state(graph, plan, owned),
        *_division(graph, plan),
        *(_untraced(graph, plan) if traced else ()),
        *_host_environments(graph, plan, owned),
        *_outside(graph, plan, owned),
        *check_batches.problems(graph, plan, owned),
        *check_links.problems(graph, plan, owned),
        *hosts.problems(plan),
        *_places(plan, devices, platform),
    ]


def numbers(plan: Plan) -> Iterator[str]:
    """What is wrong with a plan's numbers, whatever graph it is for."""
    if not plan.fragments:
        yield 'the plan has no fragment; the smallest plan is {"all": Fragment(("*",))}'
    for name, fragment in plan.fragments.items():
        for what in ("replicas", "shards", "per_device"):
            value = getattr(fragment, what)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                yield f"fragment {name!r}: {what} must be a whole number of at least 1, got {value!r}"
        if not isinstance(fragment.workers, int) or isinstance(fragment.workers, bool) or fragment.workers < 0:
            yield f"fragment {name!r}: workers must be a whole number of at least 0, got {fragment.workers!r}"
        for what, kinds in (("inside", (bool, NoneType)), ("first_ready", (bool,)), ("fused", (bool,))):
            if not isinstance(getattr(fragment, what), kinds):
                words = "true, false or left out" if len(kinds) > 1 else "true or false"
                yield f"fragment {name!r}: {what} must be {words}, got {getattr(fragment, what)!r}"
        if fragment.place is not None and not places.parse(fragment.place) and not _is_outside(fragment.place):
            yield f'fragment {name!r}: place must look like "cpu:0", "host" or "opencl:0", got {fragment.place!r}'
    yield from hosts.numbers(plan)
    for name, link in plan.links.items():
        whole = isinstance(link.lag, int) and not isinstance(link.lag, bool) and link.lag >= 0
        if not whole and link.lag != "latest":
            yield f'link {name!r}: lag must be 0, a whole number above it, or "latest", got {link.lag!r}'


def _claims(graph: Graph, plan: Plan) -> Iterator[str]:
    sites = graph.sites()
    known = {REST, *sites, *(node.kind for node in sites.values())}
    for name, fragment in plan.fragments.items():
        for wanted in fragment.nodes:
            if wanted not in known and wanted not in _KINDS:
                near = difflib.get_close_matches(wanted, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                yield f"fragment {name!r} names the node {wanted!r}, which {graph.algorithm} does not have{hint}"
    for site, found in plan.claims(graph).items():
        if not found:
            yield f'node {site!r} is in no fragment: name it in one, or put "*" into one to take all that is left'
        if len(found) > 1:
            yield f"node {site!r} is in {len(found)} fragments ({', '.join(found)}): leave it in one"


_KINDS = ("act", "env", "call", "remember", "sample", "reprioritize", "apply")


def _writers(graph: Graph, owned: Ownership) -> Iterator[str]:
    writers: dict[str, dict[str, str]] = {}
    for node in graph.nodes():
        for var in node.writes:
            writers.setdefault(var, {}).setdefault(owned.home[node.name], node.name)
    for var, homes in writers.items():
        if len(homes) > 1:
            who = " and ".join(f"{node!r} in {home!r}" for home, node in homes.items())
            yield f"state {var!r} is written in {len(homes)} fragments, by {who}: put its writers into one fragment"


def _replicated_state(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    first = [node for node in graph.nodes() if node.kind == "init"]
    for var in sorted(set().union(*(written(node) for node in first)) - set(graph.views)):
        name = owned.owner[var]
        if plan.fragments[name].replicas > 1 and not graph.variables[var].divisible:
            yield (
                f"state {var!r} belongs to all environments together, but fragment {name!r} has "
                f"{plan.fragments[name].replicas} replicas, which would each keep their own: use shards instead of "
                "replicas, or move its writer into a fragment of its own"
            )


def _division(graph: Graph, plan: Plan) -> Iterator[str]:
    for name, fragment in plan.fragments.items():
        parts = fragment.cut.parts
        for what, count in graph.divisors:
            if count % parts == 0:
                continue
            pieces = f"{fragment.replicas} replicas x {fragment.shards} shards"
            if what == "the environments":
                yield (
                    f"fragment {name!r}: {count} environments do not divide by {pieces} = {parts}; choose a number of "
                    f"environments that {parts} divides"
                )
            else:
                yield (
                    f"fragment {name!r}: node {what!r} draws from {count} block{'s' if count > 1 else ''} of "
                    f"environments, which {pieces} = {parts} does not divide; use a number of pieces that divides "
                    f"{count}"
                )


def _untraced(graph: Graph, plan: Plan) -> Iterator[str]:
    for name, fragment in plan.fragments.items():
        if all(count % fragment.cut.parts == 0 for _, count in graph.divisors) and fragment.cut not in graph.cuts:
            yield f"fragment {name!r}: the graph was not traced for {fragment.cut}; pass cuts=plan.cuts() to trace"


def _host_environments(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """Where environments that are not written in JAX may run, and what is for them alone."""
    for node in graph.sites().values():
        name = owned.home[node.name]
        fragment = plan.fragments[name]
        if node.host is not None and fragment.fused:
            yield (
                f"node {node.name!r}: {graph.environment} is not written in JAX, so it cannot be part of fragment "
                f"{name!r}, which must be one compiled program: use a plan such as batched or sebulba"
            )
        share = graph.num_envs // hosts.members(plan, name)
        if node.host is not None and fragment.workers > share:
            what = "a replica on one host" if hosts.span(plan, name) > 1 else "a replica"
            yield (
                f"fragment {name!r}: {fragment.workers} workers for the {share} environments of {what} would leave "
                "some without any: lower workers"
            )
    homes = {owned.home[node.name] for node in graph.sites().values() if node.host is not None}
    for name in homes:
        fragment = plan.fragments[name]
        platform = (places.parse(fragment.place) or ("cpu", 0))[0]
        why = why_outside(graph, fragment, platform)
        if fragment.inside and why:
            yield (
                f"fragment {name!r} is to ask its environments from inside of its programs, but {why}: set inside to "
                "False, or leave it out"
            )
    for name, fragment in plan.fragments.items():
        if fragment.first_ready and not fragment.workers:
            yield (
                f"fragment {name!r} goes on with whose environments are ready first, but without workers its own "
                "thread steps them, one after the other: set workers to at least 1, or first_ready to False"
            )
        if fragment.workers and name not in homes:
            why = (
                f"its environments are in fragment {next(iter(homes))!r}"
                if homes
                else f"{graph.environment} is written in JAX and is compiled, not stepped by processes"
            )
            yield f"fragment {name!r} has {fragment.workers} workers, but {why}: set workers to 0"


def _outside(graph: Graph, plan: Plan, owned: Ownership) -> Iterator[str]:
    """What may run where JAX does not: a replay, in one piece."""
    for name, fragment in plan.fragments.items():
        if not fragment.outside:
            continue
        for node in graph.sites().values():
            if owned.home[node.name] == name and node.replay is None:
                yield (
                    f"fragment {name!r} is placed on {fragment.place!r}, where only a replay can be, but it holds node "
                    f"{node.name!r}: name only remember, sample and reprioritize in it"
                )
        if fragment.cut.parts > 1:
            yield f"fragment {name!r}: a replay on {fragment.place!r} is in one piece; set replicas and shards to 1"


def _places(plan: Plan, devices: Devices | None, platform: str) -> Iterator[str]:
    if devices is not None:
        yield from places.problems(plan, devices if isinstance(devices, Mapping) else {platform: devices})


def _is_outside(place: object) -> bool:
    kind, _, number = place.partition(":") if isinstance(place, str) else ("", "", "")
    return kind in OUTSIDE and (not number or (kind != "host" and number.isdecimal() and len(number) < 10))
