"""What a loop costs on this machine, measured in a few seconds: its calls, its environments, its messages.

Plans are run one after the other in one thread, as few as hold all calls that any candidate has, with environments in
which nothing happens; environments are timed by themselves. So nothing waits for anything else, and what happens when
several do is left to the virtual clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from motet.engine.company import time_calling, time_crowding, time_waking
from motet.engine.detect import cores
from motet.engine.place import devices_for
from motet.engine.rehearse import schedules_of
from motet.engine.run import Reporter, Watcher
from motet.engine.stopwatch import Samples, calls_of
from motet.engine.trial import Trial, shortened
from motet.errors import described
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment, Opening
from motet.plan.cost import Fit, Profile, call_key
from motet.plan.plan import Plan

BUDGET = 15.0
"""Seconds that a first profile may take."""
COMPILING = 0.4
"""The share of them after which nothing else is compiled."""
EACH, LEAST = 0.6, 0.15
"""Seconds for each plan, when it is compiled, and for each pool of environments; what a plan has if time is short."""
COMPANY = 1.0
"""Seconds that are set aside for what company costs."""
HELD_UP = 5.0
"""How many times as long as usual a step takes that was held up."""
STRETCHES = 9
"""The steps of a pool of processes are timed in so many stretches. In some of them the machine was held up."""
Item = tuple[str, float]
"""A call's key, and how many environments it has."""


def profile(
    graph: Graph,
    plans: Sequence[Plan],
    environments: Mapping[str, Fit] | None = None,
    *,
    budget: float = BUDGET,
    announce: Callable[[str], None] = lambda text: None,
    watcher: Callable[[Reporter], Watcher] | None = None,
) -> Profile:
    """Measure what `plans` need, the first ones first. The graph must be traced for the cuts of those that `cover`.

    Everything is compiled before anything is timed, since compilers take all cores. What there is no time to compile
    is left out: plans that would come late, and calls of those that came in time.
    """
    began, samples, left_out = time.perf_counter(), Samples(), list[str]()
    few, trials, until = shortened(graph), list[Trial](), began + budget * COMPILING

    def compiled(item: tuple[Plan, frozenset[str]]) -> Trial | str:
        plan, wanted = item
        if time.perf_counter() > until:
            return f"{describe(plan)}: no time was left"
        announce(f"compiling {describe(plan)}")
        try:
            trial = Trial(few, plan, devices_for(plan), wanted, watcher)
            trial.compile(until)
            return trial
        except Exception as error:  # whatever a device or a program raises: all others are still worth measuring
            return f"{describe(plan)}: {described(error)}"

    with ThreadPoolExecutor(min(2, cores())) as compilers:
        for found in compilers.map(compiled, cover(graph, plans).items()):
            trials += [found] if isinstance(found, Trial) else []
            left_out += [found] if isinstance(found, str) else []
    left_out += [f"{describe(each.plan)}, {call}: no time was left" for each in trials for call in each.late]
    left = (began + budget - COMPANY - time.perf_counter()) / max(1, len(trials))
    for trial in trials:
        announce(f"timing {describe(trial.plan)}")
        try:
            trial.time(samples, min(EACH, max(LEAST, left)))
        except Exception as error:
            left_out.append(f"{describe(trial.plan)}: {described(error)}")
        finally:
            trial.close()
    about = {"seconds": f"{time.perf_counter() - began:.1f}", "left out": "; ".join(left_out)}
    return _profile(samples, environments or {}, graph.num_envs, about)


def _profile(samples: Samples, environments: Mapping[str, Fit], size: int, about: Mapping[str, str]) -> Profile:
    def median(values: Sequence[float]) -> float:
        return statistics.median(values) if values else 0.0

    return Profile(
        calls={key: Fit(tuple(sorted(found.items())), samples.demand[key]) for key, found in samples.calls.items()},
        environments=environments,
        replay={key: Fit(((float(size), seconds),)) for key, seconds in samples.replay.items()},
        send=tuple(sorted(samples.send)),
        receive=tuple(sorted(samples.receive)),
        stack=tuple(sorted(samples.stack)),
        asking=median(samples.asking),
        handling=median(samples.handling),
        reporting=median(samples.reporting),
        calling=time_calling(),
        waking=time_waking(),
        crowding=time_crowding(),
        about=about,
    )


def items_of(graph: Graph, plan: Plan) -> set[Item]:
    """All calls that a plan has in an iteration, as they are measured."""
    found: set[Item] = set()
    alone = sum(each.replicas for each in plan.fragments.values()) == 1
    for name, schedule in schedules_of(graph, plan).items():
        fragment = plan.fragments[name]
        size = graph.num_envs / fragment.cut.parts
        if alone and schedule.whole is not None:
            return {(call_key("cpu", schedule.whole, fragment.shards, True), size)}
        found |= {(call_key("cpu", call, fragment.shards, False), size) for call in calls_of(schedule.body)}
    return found


def cover(graph: Graph, plans: Iterable[Plan]) -> dict[Plan, frozenset[str]]:
    """Those of the plans, in their order, that have calls which none before them has, and the keys of these calls: at
    the largest and the smallest number of environments, since those in between follow."""
    items = {plan: items_of(graph, plan) for plan in plans}
    sizes: dict[str, list[float]] = {}
    for found in items.values():
        for key, size in found:
            sizes.setdefault(key, []).append(size)
    wanted = {(key, end) for key, found in sizes.items() for end in (min(found), max(found))}
    chosen: dict[Plan, frozenset[str]] = {}
    for plan, found in items.items():
        if found & wanted:
            chosen[plan] = frozenset(key for key, _ in found & wanted)
            wanted -= found
    return chosen


def describe(plan: Plan) -> str:
    """A plan in few words: its name, and what its fragments say of themselves."""
    words = []
    for name, each in plan.fragments.items():
        said = [
            f"{what}={getattr(each, what)}" for what in ("replicas", "shards", "workers") if getattr(each, what) > 1
        ]
        words.append(f"{name}{' ' if said else ''}{' '.join(said)}")
    return f"{plan.name} ({', '.join(words)})"


def time_environments(
    graph: Graph, plans: Sequence[Plan], announce: Callable[[str], None] = lambda text: None
) -> tuple[dict[str, Fit], list[str]]:
    """One step of the host environments, by worker processes, and what could not be measured."""
    env = next((node.host.environment for node in graph.nodes() if node.host is not None), None)
    fits, left_out, began = dict[str, Fit](), list[str](), time.perf_counter()
    for workers, counts in _pools(graph, plans).items() if env is not None else ():
        points, demands = [], []
        for count in counts:
            if fits and time.perf_counter() - began > BUDGET / 3:
                left_out.append(f"{count} environments, {workers} workers: no time was left")
                continue
            announce(f"profiling {count} environments in {f'{workers} processes' if workers else 'a thread'}")
            try:
                assert env is not None
                seconds, demand = time_pool(env, count, workers)
            except Exception as error:
                left_out.append(f"{count} environments, {workers} workers: {described(error)}")
                continue
            points.append((float(count), seconds))
            demands.append(demand)
        if points:
            fits[str(workers)] = Fit(tuple(sorted(points)), max(demands))
    return fits, left_out


def _pools(graph: Graph, plans: Sequence[Plan]) -> dict[int, list[int]]:
    """Worker processes -> the numbers of environments to time. Of processes, the most that any plan has: to start them
    takes long, and fewer of them follow. In a thread, the largest and the smallest number."""
    found: dict[int, set[int]] = {0: {graph.num_envs}}
    homes = {id(plan): plan.homes(graph) for plan in plans}
    for plan in plans:
        names = {homes[id(plan)][node.name] for node in graph.nodes() if node.host is not None}
        for name in names:
            fragment = plan.fragments[name]
            found.setdefault(fragment.workers, set()).add(graph.num_envs // fragment.replicas)
    return {
        workers: sorted({max(counts), min(counts)} if not workers else {max(counts)}, reverse=True)
        for workers, counts in sorted(found.items())
        if workers in (0, max(found))
    }


def time_pool(env: HostEnvironment, count: int, workers: int) -> tuple[float, float]:
    """Seconds of a step of so many environments with random actions, and how many cores it kept busy."""
    actions = _actions(env, count)
    pool = env.open(Opening(0, count, 0, workers))

    def steps(seconds: float) -> tuple[list[float], list[float]]:
        took, used, began = list[float](), list[float](), time.perf_counter()
        while not took or (time.perf_counter() - began < seconds and not _is_steady(took)):
            start, before = time.perf_counter(), time.process_time()
            pool.step(actions[len(took) % len(actions)])
            took.append(time.perf_counter() - start)
            used.append(time.process_time() - before)
        return took, used

    try:
        pool.reset()
        steps(EACH / 10)  # what has just begun is slow
        began, cpu = time.perf_counter(), time.process_time()
        took, used = steps(EACH / 2)
        wall, busy = time.perf_counter() - began, time.process_time() - cpu
    finally:
        pool.close()
    # Means, not medians: now and then an episode ends, and that is part of what steps cost.
    if workers:
        return mostly(took), float(min(workers, cores()))
    return statistics.mean(undisturbed(took, used)), max(1.0, busy / wall)


def undisturbed(took: Sequence[float], used: Sequence[float]) -> list[float]:
    """Seconds of steps, without those that the machine held up: they took many times as long as usual, and this
    process computed for less than half of it. A virtual machine may stand still for as long as a hundred steps."""
    usual = statistics.median(took)
    return [wall for wall, cpu in zip(took, used, strict=True) if wall <= HELD_UP * usual or cpu > wall / 2]


def mostly(took: Sequence[float]) -> float:
    """Seconds of a step in most stretches of them: what other processes compute meanwhile is not known, so it cannot be
    told in which steps they were held up."""
    long = max(1, len(took) // STRETCHES)
    return statistics.median(statistics.mean(took[at : at + long]) for at in range(0, len(took) - long + 1, long))


def _is_steady(took: Sequence[float]) -> bool:
    if len(took) < 200 or len(took) % 100:
        return False
    half = len(took) // 2
    first, second = statistics.mean(took[:half]), statistics.mean(took[half:])
    return abs(first - second) < 0.03 * second


def _actions(env: HostEnvironment, count: int, different: int = 8) -> list[tuple[np.ndarray, ...]]:
    keys = jax.random.split(jax.random.key(0), (different, count))
    drawn = jax.tree.leaves(jax.vmap(jax.vmap(env.action_space.sample))(keys))
    return [tuple(np.asarray(leaf[each]) for leaf in drawn) for each in range(different)]
