"""Whether a plan fits a graph and a machine. Every violation is found before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from motet.errors import BadPlan
from motet.flow.graph import Graph, Loop, Node, walk, written
from motet.plan.plan import OUTSIDE, REST, Plan
from motet.plan.project import Cast, Wire


def check(graph: Graph, plan: Plan, devices: int | None = None, platform: str | None = None) -> None:
    """Raise `BadPlan` with all violations, each naming the node, edge or fragment and what to change."""
    found = violations(graph, plan, devices, platform)
    if found:
        raise BadPlan(found)


def violations(graph: Graph, plan: Plan, devices: int | None = None, platform: str | None = None) -> list[str]:
    """Everything that keeps `plan` from running `graph`; without `devices`, places are not looked at."""
    found = [*numbers(plan), *_claims(graph, plan)]
    if found:  # the rest needs to know where each node is
        return [*found, *_places(plan, devices, platform)]
    cast = Cast(graph, plan)
    return [
        *_writers(graph, cast),
        *_replicated_state(graph, plan, cast),
        *_division(graph, plan),
        *_hosts(graph, plan, cast),
        *_outside(graph, plan, cast),
        *_statistics(graph, plan, cast),
        *_pieces(graph, plan, cast),
        *_orders(graph, plan, cast),
        *_links(graph, plan, cast),
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
        if fragment.place is not None and _device(fragment.place) is None and fragment.place not in OUTSIDE:
            yield f'fragment {name!r}: place must look like "cpu:0", "host" or "opencl:0", got {fragment.place!r}'
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


def _writers(graph: Graph, cast: Cast) -> Iterator[str]:
    writers: dict[str, dict[str, str]] = {}
    for node in graph.nodes():
        for var in node.writes:
            writers.setdefault(var, {}).setdefault(cast.home[node.name], node.name)
    for var, homes in writers.items():
        if len(homes) > 1:
            who = " and ".join(f"{node!r} in {home!r}" for home, node in homes.items())
            yield f"state {var!r} is written in {len(homes)} fragments, by {who}: put its writers into one fragment"


def _replicated_state(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    first = [node for node in graph.nodes() if node.kind == "init"]
    for var in sorted(set().union(*(written(node) for node in first)) - set(graph.views)):
        name = cast.owner[var]
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
        if all(count % parts == 0 for _, count in graph.divisors) and fragment.cut not in graph.cuts:
            yield f"fragment {name!r}: the graph was not traced for {fragment.cut}; pass cuts=plan.cuts() to trace"


def _hosts(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    """Where environments that are not written in JAX may run, and what is for them alone."""
    for node in graph.sites().values():
        name = cast.home[node.name]
        fragment = plan.fragments[name]
        if node.host is not None and fragment.fused:
            yield (
                f"node {node.name!r}: {graph.environment} is not written in JAX, so it cannot be part of fragment "
                f"{name!r}, which must be one compiled program: use a plan such as batched or sebulba"
            )
        if node.host is not None and fragment.workers > graph.num_envs // fragment.replicas:
            yield (
                f"fragment {name!r}: {fragment.workers} workers for the {graph.num_envs // fragment.replicas} "
                "environments of a replica would leave some without any: lower workers"
            )
    hosts = {cast.home[node.name] for node in graph.sites().values() if node.host is not None}
    for name, fragment in plan.fragments.items():
        if fragment.workers and name not in hosts:
            why = (
                f"its environments are in fragment {next(iter(hosts))!r}"
                if hosts
                else f"{graph.environment} is written in JAX and is compiled, not stepped by processes"
            )
            yield f"fragment {name!r} has {fragment.workers} workers, but {why}: set workers to 0"


def _outside(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    """What may run where JAX does not: a replay, in one piece."""
    for name, fragment in plan.fragments.items():
        if not fragment.outside:
            continue
        for node in graph.sites().values():
            if cast.home[node.name] == name and node.replay is None:
                yield (
                    f"fragment {name!r} is placed on {fragment.place!r}, where only a replay can be, but it holds node "
                    f"{node.name!r}: name only remember, sample and reprioritize in it"
                )
        if fragment.cut.parts > 1:
            yield f"fragment {name!r}: a replay on {fragment.place!r} is in one piece; set replicas and shards to 1"


def _statistics(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    """What a node computes over the whole batch and would compute otherwise over a share of it."""
    for site in plan.per_replica:
        if site not in graph.sites():
            known = ", ".join(graph.sites())
            yield f"per_replica names {site!r}, which is no node of {graph.algorithm}; its nodes are {known}"
    for node in graph.sites().values():
        name = cast.home[node.name]
        fragment = plan.fragments[name]
        if node.name in plan.per_replica:
            continue
        accept = f"accept it with per_replica=({node.name!r},)"
        partial = [v for v in node.reads if graph.variables[v].partial and cast.owner[v] == name]
        reads = f"reads {partial[0]!r}, a result over the batch" if partial else ""
        why = "computes a statistic over the batch" if node.statistic else reads
        if why and fragment.replicas > 1:
            yield (
                f"node {node.name!r} {why}, but the {fragment.replicas} replicas of fragment {name!r} each see their "
                f"own share and no collective joins them: use shards, or {accept}"
            )
        if node.draws and fragment.cut.parts > 1 and node.kind == "sample":
            yield (
                f"node {node.name!r} draws from one distribution over all environments, but the {fragment.cut.parts} "
                f"pieces of fragment {name!r} would each draw from their own: keep the node in one piece, or {accept}"
            )
        elif node.draws and fragment.cut.parts > 1:
            yield (
                f"node {node.name!r} draws random numbers for its batch, which the {fragment.cut.parts} pieces of "
                f"fragment {name!r} would draw otherwise: draw them in act, keep the node in one piece, or {accept}"
            )


def _pieces(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    """What a node makes of the whole batch and no combination of pieces would give."""
    for node in graph.sites().values():
        name = cast.home[node.name]
        parts = plan.fragments[name].cut.parts
        if parts == 1:
            continue
        more = f" and {len(node.whole) - 1} other results" if len(node.whole) > 1 else ""
        if node.whole and node.kind == "apply":
            read = (graph.variables[var] for var in node.reads)
            links = ", ".join(dict.fromkeys(repr(var.link) for var in read if var.divisible))
            yield (
                f"node {node.name!r} reads {links}, of which each of the {parts} pieces of fragment {name!r} has its "
                f"own rows, and would change the state differently in each: {node.whole[0]}{more}. Compute gradients "
                "in a method for flow.call, whose results are combined over the pieces, use motet.batch_mean and the "
                f"like in {node.name!r}, or keep the node in one piece"
            )
        elif node.whole and node.name not in plan.per_replica:
            yield (
                f"node {node.name!r} returns {node.whole[0]}{more}, which the {parts} pieces of fragment {name!r} "
                "would each compute from their own rows, and no combination of them is that of the whole batch: take "
                "what is over the batch with motet.batch_mean(x, weight), motet.batch_sum, motet.batch_max or "
                "motet.batch_moments, compute the rest in a later flow.call, keep the node in one piece, or accept it "
                f"with per_replica=({node.name!r},)"
            )
        elif not node.whole:
            yield from _averages(graph, node, f"the {parts} pieces of fragment {name!r}")


def _averages(graph: Graph, node: Node, pieces: str) -> Iterator[str]:
    """Results that could only be averaged and are of a type that has no average."""
    for var in (graph.variables[var] for var in node.writes):
        for path, aval, how in zip(var.paths(), var.avals, var.combine, strict=True):
            if how == "mean" and aval.dtype.kind not in "fcV":
                yield (
                    f"node {node.name!r} returns {path} of the type {aval.dtype}, of which {pieces} could only be "
                    "averaged, and such values have no average: return a sum or an extreme over the rows, which "
                    "combine as they are, or a float"
                )


def _orders(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    """Rows that lie otherwise in pieces than in the whole batch, and so cannot be joined or cut on the way."""
    for loop in (item for item, _ in walk(graph.root) if isinstance(item, Loop)):
        for wire in cast.wires_of(loop):
            source, target = (plan.fragments[name].cut.parts for name in (wire.source, wire.target))
            for var in (graph.variables[name] for name in wire.vars if source != target):
                if max(var.blocks, default=1) > 1:
                    yield (
                        f"link {wire.link!r}: the rows of {var.name!r} are shuffled within each piece, so they cannot "
                        f"go from the {source} pieces of fragment {wire.source!r} to the {target} of "
                        f"{wire.target!r}: put what makes them and what reads them into one fragment, or give both as "
                        "many pieces"
                    )


def _links(graph: Graph, plan: Plan, cast: Cast) -> Iterator[str]:
    level: dict[str, list[bool]] = {}
    for loop in (item for item, _ in walk(graph.root) if isinstance(item, Loop)):
        found = cast.wires_of(loop)
        for wire in found:
            back = wire.through or (wire.carried and loop is graph.iteration)
            level.setdefault(wire.link, []).append(bool(back) or _may_run_ahead(graph, loop, wire, found))
    for name, link in plan.links.items():
        if name not in level:
            cut = ", ".join(sorted(level)) or "none, since nothing is cut"
            if link.lag:
                yield f"link {name!r} is cut nowhere by this plan, so it cannot lag; the links that are cut: {cut}"
            elif name not in {var.link for var in graph.variables.values()}:
                yield f"link {name!r} is for no value of {graph.algorithm}; the links that are cut: {cut}"
            continue
        if link.lag not in (0, "latest") and not any(level[name]):
            yield (
                f"link {name!r} cannot lag: its value is read in the round that writes it, so there is none from "
                "before. Put the lag on a link that goes back to the start of the loop, such as 'policy', or on what "
                "is drawn ahead, 'sample'"
            )
        limit = graph.max_lag
        if limit is not None and (link.lag == "latest" or (isinstance(link.lag, int) and link.lag > limit)):
            bound = "has no bound" if link.lag == "latest" else f"is {link.lag}"
            yield (
                f"link {name!r}: its lag {bound}, but {graph.algorithm} learns from a lag of at most {limit}: lower "
                "the lag or choose an algorithm that corrects for it"
            )


def _may_run_ahead(graph: Graph, loop: Loop, wire: Wire, found: Iterable[Wire]) -> bool:
    """Whether a writer inside the iteration may be rounds ahead of its reader: if all its answers may be late."""
    answers = [w for w in found if w.carried and (w.source, w.target) == (wire.target, wire.source)]
    late = all(graph.variables[var].late for answer in answers for var in answer.vars)
    return not wire.carried and loop in graph.iteration.body and loop.rate == "update" and late


def _places(plan: Plan, devices: int | None, platform: str | None) -> Iterator[str]:
    if devices is None:
        return
    for name, fragment in plan.fragments.items():
        if fragment.outside:
            continue
        wanted = fragment.place.partition(":")[0] if isinstance(fragment.place, str) else None
        if platform and wanted and wanted != platform:
            yield f"fragment {name!r} is placed on {fragment.place!r}, but devices here are of the kind {platform!r}"
            continue
        if not all(
            isinstance(count, int) and count > 0 for count in (fragment.shards, fragment.replicas, fragment.per_device)
        ):
            continue
        first = _device(fragment.place) if fragment.place else None
        if first is not None and first + fragment.devices > devices:
            last = first + fragment.devices - 1
            yield f"fragment {name!r} takes devices {first} to {last}, but there are {devices} {_advice(last + 1)}"
        elif first is None and fragment.shards > devices:
            need = fragment.shards
            yield f"fragment {name!r} needs {need} devices, but there are {devices} {_advice(need)}"


def _advice(count: int) -> str:
    return f"(on a CPU, ask for more with --devices {count} or motet.virtual_devices({count}))"


def _device(place: str) -> int | None:
    platform, _, index = place.partition(":") if isinstance(place, str) else ("", "", "")
    return int(index) if platform and index.isdigit() else None
