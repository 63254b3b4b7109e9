"""Which plan to take: every preset with every value of its options that makes sense on a machine, the best one first.

Candidates that do not fit are refused with their reasons. The others are ranked by a score, higher is better, that
somebody else computes; a bound on it, which is cheaper, says which ones need not be looked at. The result is that of
looking at all of them.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.flow.graph import Graph
from motet.plan.check import violations
from motet.plan.machine import Device, Machine
from motet.plan.plan import Plan
from motet.plan.presets import PRESETS

EXHAUSTIVE = 10_000
"""Candidates up to which all are looked at; beyond, the neighbours of the best ones are."""
BEAM = 16


@dataclass(frozen=True)
class Permitted:
    """What a planner may use besides what the machine has."""

    lag: int = 0
    """The largest lag that the user permits; an algorithm may permit less."""
    replays: tuple[str | None, ...] = (None,)
    """Where a replay may lie."""
    presets: tuple[str, ...] = tuple(PRESETS)


@dataclass(frozen=True)
class Refused:
    """A candidate that cannot run, and why."""

    plan: Plan
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Candidates:
    """Plans that fit, and those that do not."""

    plans: tuple[Plan, ...]
    refused: tuple[Refused, ...] = field(default=())
    words: Mapping[Plan, str] = field(default_factory=dict)
    """How each is written: a preset and its options."""


Values = Mapping[str, Sequence[Any]]
"""Option -> the values to try."""


def values(graph: Graph, machine: Machine, permitted: Permitted) -> dict[str, dict[str, Sequence[Any]]]:
    """Preset -> each of its options -> the values that make sense here."""
    usual = machine.devices[0]
    devices = numbers(usual.count, machine.hosts)
    many = numbers(max(usual.count, machine.cores), machine.hosts)
    hosted = any(node.host is not None for node in graph.nodes())
    lags = range(min(permitted.lag, permitted.lag if graph.max_lag is None else graph.max_lag) + 1)
    ranges: dict[str, Sequence[Any]] = {
        "shards": devices,
        "learners": devices,
        "actors": many,
        "environments": many,
        "threads": (1, 2),
        "lag": lags,
        "prefetch": lags,
        "workers": (0, *doubling(machine.cores)) if hosted else (0,),
        "first_ready": (False, True) if hosted else (False,),
        "replay": permitted.replays,
        "per_replica": ((),),
    }
    found = {}
    for name in permitted.presets:
        options = inspect.signature(PRESETS[name]).parameters
        found[name] = {option: ranges[option] for option in options}
    if "central" in found:
        found["central"]["workers"] = many  # there it says how many act and learn
    return found


def numbers(each: int, hosts: int) -> tuple[int, ...]:
    """How many parts may lie on so many hosts with so much `each`: 1, 2, 4, ... in all, and on every host."""
    return tuple(sorted({*doubling(each * hosts), *(hosts * number for number in doubling(each))}))


def doubling(most: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `most`, which is one of them."""
    found = list(itertools.takewhile(lambda each: each < most, (2**power for power in itertools.count())))
    return (*found, most)


def candidates(
    graph: Graph, machine: Machine, permitted: Permitted, only: Callable[[Plan], bool] = lambda plan: True
) -> Candidates:
    """All plans of the presets that fit a graph and a machine, or `only` some. Whether the graph was traced for their
    cuts does not matter."""
    words = dict[Plan, str]()
    for text, plan in every(values(graph, machine, permitted), machine):
        if only(plan):
            words.setdefault(plan, text)
    return replace(sift(graph, machine, words), words=words)


def every(options: Mapping[str, Values], machine: Machine) -> Iterator[tuple[str, Plan]]:
    """All that presets with these options stand for on a machine, in words and as plans."""
    for name, each in options.items():
        for chosen in itertools.product(*each.values()):
            yield from _placed(name, dict(zip(each, chosen, strict=True)), machine)


def _placed(name: str, given: Mapping[str, Any], machine: Machine) -> Iterator[tuple[str, Plan]]:
    """A preset with its options, in words and as a plan. Where there are other devices than processors, it comes once
    more for each choice of fragments that could lie on a processor instead."""
    text, plan = spelled(name, given), PRESETS[name](**given)
    yield text, plan
    processor = _spare(machine)
    if processor is None:
        return
    free = [
        name
        for name, each in plan.fragments.items()
        if each.place is None and each.shards == 1 and each.replicas <= each.per_device * processor.count
    ]
    for number in range(1, len(free) + 1):
        for chosen in itertools.combinations(free, number):
            moved = {name: replace(plan.fragments[name], place="cpu:0") for name in chosen}
            yield f"{text} with {' and '.join(chosen)} on cpu:0", replace(plan, fragments={**plan.fragments, **moved})


def _spare(machine: Machine) -> Device | None:
    """The processor beside other devices, on which parts may lie instead."""
    processor = machine.device("cpu")
    return None if processor is machine.devices[0] or machine.hosts > 1 else processor


def count(options: Mapping[str, Values], machine: Machine, most: int = EXHAUSTIVE) -> int:
    """How many plans they stand for on a machine, each choice of places among them; where it is above `most`, no more
    than that is found out."""
    points = sum(math.prod(map(len, each.values())) for each in options.values())
    if points > most or _spare(machine) is None:
        return points
    return sum(1 for _ in itertools.islice(every(options, machine), most + 1))


def sift(graph: Graph, machine: Machine, plans: Iterable[Plan]) -> Candidates:
    """Those of the plans that can run here, each once."""
    fit: list[Plan] = []
    refused: list[Refused] = []
    known: set[Any] = set()
    for plan in dict.fromkeys(plans):
        reasons = tuple(violations(graph, plan, machine.counts, traced=False))
        if reasons:
            refused.append(Refused(plan, reasons))
        elif (same := _plain(plan, machine)) not in known:
            known.add(same)
            fit.append(plan)
    return Candidates(tuple(sorted(fit, key=size)), tuple(refused))


def size(plan: Plan) -> int:
    """How many parts run at once: of plans that are equally good, the one with the fewest comes first."""
    return sum(each.replicas * (1 + each.workers) + each.shards - 1 for each in plan.fragments.values())


def spelled(name: str, given: Mapping[str, Any]) -> str:
    """A preset with its options as one writes it, those at their defaults left out."""
    defaults = {option: each.default for option, each in inspect.signature(PRESETS[name]).parameters.items()}
    said = (f"{option}={value!r}" for option, value in given.items() if value != defaults[option])
    return f"{name}({', '.join(said)})"


def _plain(plan: Plan, machine: Machine) -> Any:
    """What a plan does, whatever it and its fragments are called: equal of two that run the same here.

    Where the usual device is the cores, replicas that share a device and replicas that do not are the same threads.
    """
    cores = machine.devices[0].kind == "cpu"
    fragments = [
        replace(each, fused=False, per_device=1 if cores and not each.first_ready else each.per_device)
        for each in plan.fragments.values()
    ]
    return (*fragments, *sorted((name, link.lag) for name, link in plan.links.items()), plan.per_replica)


@dataclass(frozen=True)
class Ranked:
    """Plans by their score, best first, and how many were looked at in full."""

    best: tuple[tuple[Plan, float], ...]
    looked_at: int
    words: Mapping[Plan, str] = field(default_factory=dict)
    """How each is written, where the plans were made here."""


def rank(
    plans: Sequence[Plan],
    score: Callable[[Plan], float],
    bound: Callable[[Plan], float],
    keep: int = 8,
    above: float = float("-inf"),
) -> Ranked:
    """The `keep` best plans. `bound` is never below `score`: whoever cannot come among the best, or `above` a score
    that is to be beaten, is not looked at."""
    waiting = sorted(((bound(plan), -place, plan) for place, plan in enumerate(plans)), key=lambda each: each[:2])
    best: list[tuple[float, int, Plan]] = []
    looked_at = 0
    while waiting:
        most, place, plan = waiting.pop()
        if most <= above or (len(best) >= keep and most <= best[0][0]):
            break
        looked_at += 1
        entry = (score(plan), place, plan)
        heapq.heappush(best, entry) if len(best) < keep else heapq.heappushpop(best, entry)
    ordered = sorted(best, key=lambda each: each[:2], reverse=True)
    return Ranked(tuple((plan, found) for found, _, plan in ordered), looked_at)


def beam(
    options: Mapping[str, Values],
    machine: Machine,
    score: Callable[[Plan], float | None],
    width: int = BEAM,
    keep: int = 8,
) -> Ranked:
    """For more candidates than can be looked at: from the ends and middles of every option's values, change one option
    at a time, of the best so far. It ends when their neighbours are all known. `score` is None of what cannot run."""
    scores: dict[Plan, float | None] = {}
    words: dict[Plan, str] = {}

    def best_of(name: str, given: Mapping[str, Any]) -> float | None:
        """The score of a point: of all places that its fragments may have, the best."""
        plans = dict[Plan, str]()
        for text, plan in _placed(name, given, machine):
            plans.setdefault(plan, text)
        for plan, text in plans.items():
            if plan not in scores:
                scores[plan], words[plan] = score(plan), text
        return max((found for plan in plans if (found := scores[plan]) is not None), default=None)

    for name, each in options.items():
        starts = itertools.product(*(_picked(found) for found in each.values()))
        points = {chosen: best_of(name, dict(zip(each, chosen, strict=True))) for chosen in starts}
        expanded: set[tuple[Any, ...]] = set()
        while True:
            best = heapq.nlargest(
                width, ((found, point) for point, found in points.items() if found is not None), _first
            )
            front = [point for _, point in best if point not in expanded]
            if not front:
                break
            for point in front:
                expanded.add(point)
                for near in _neighbours(each, point):
                    if near not in points:
                        points[near] = best_of(name, dict(zip(each, near, strict=True)))
    ordered = sorted(((found, plan) for plan, found in scores.items() if found is not None), key=lambda pair: -pair[0])
    return Ranked(tuple((plan, found) for found, plan in ordered[:keep]), len(scores), words)


def _first(pair: tuple[float, tuple[Any, ...]]) -> float:
    return pair[0]


def _picked(found: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys((found[0], found[len(found) // 2], found[-1])))


def _neighbours(options: Values, point: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for place, found in enumerate(options.values()):
        number = list(found).index(point[place])
        for other in (number - 1, number + 1):
            if 0 <= other < len(found):
                yield (*point[:place], found[other], *point[place + 1 :])
