"""Choose a plan: measure what there is to measure, estimate every candidate, take the best.

choice = motet.planning.choose(motet.PPO(), motet.make("gymnasium/CartPole-v1"))
motet.train(motet.PPO(), "gymnasium/CartPole-v1", choice.plan)
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from motet import envs
from motet.engine import profiles
from motet.engine.conditions import conditions
from motet.engine.detect import detect
from motet.engine.estimate import Estimate, estimate, floor
from motet.engine.pools import Pools
from motet.engine.profile import BUDGET, COMPILING, Announce, Profiling, cover, describe
from motet.engine.run import Reporter
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.graph import WHOLE, Graph
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.plan import search
from motet.plan.cost import Book, Profile
from motet.plan.machine import Machine
from motet.plan.objective import Objective, parse
from motet.plan.plan import Plan
from motet.plan.search import Permitted, Refused
from motet.runs.metrics import Meter

ITERATIONS = 1000
"""The length of run that is estimated: schedules of step sizes follow from it, speeds do not."""
KEEP = 6
"""Candidates that are estimated to the end, and shown."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, from what, and why."""

    graph: Graph
    book: Book
    objective: Objective
    estimates: tuple[Estimate, ...]
    """The best candidates, best first."""
    refused: tuple[Refused, ...]
    considered: int
    """How many candidates fit."""
    given_up: Estimate | None
    """What a lag that was not permitted would have brought, if it is better than the best."""
    words: Mapping[Plan, str]
    """How each candidate is written."""
    profile: str
    """The key of the profile in the cache; empty: nothing was measured."""
    from_cache: bool
    seconds: float
    """What choosing took, profiling left aside."""

    @property
    def plan(self) -> Plan:
        return self.estimates[0].plan

    def spelled(self, plan: Plan) -> str:
        """A plan as one writes it."""
        return self.words.get(plan) or describe(plan)

    @property
    def best(self) -> Estimate:
        return self.estimates[0]


def choose(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    *,
    machine: Machine | None = None,
    objective: str = "throughput",
    lag: int = 0,
    measure: bool = True,
    again: bool = False,
    known: Profile | None = None,
    budget: float = BUDGET,
    announce: Announce = lambda text: None,
) -> Choice:
    """The best plan for an algorithm on an environment, here or on a `machine` that is described.

    Here, what candidates compute is measured once and kept (`again` measures anew), unless it is `known`; for another
    machine it is modelled
    from what the loop computes, and environments are taken to be as fast as here. Without `measure` nothing is run.
    Only plans that learn what one program learns are candidates, unless `lag` permits more and the algorithm says that
    it can learn from it.
    """
    if lag < 0:
        raise BadOption(f"lag must be at least 0, got {lag}")
    wanted = parse(objective)
    with conditions():
        graph = trace(algorithm, env, iterations=ITERATIONS, cuts=(WHOLE,))
        here = detect()
        place = machine or here
        permitted = Permitted(lag, _replays(place))
        found = _candidates(graph, place, permitted)
        if not found.plans:
            reasons = [each.reasons[0] for each in found.refused[:3]]
            raise BadOption(f"No plan fits {algorithm!r} on {place.name}: {'; '.join(reasons)}")
        measured, cached, name = known or Profile(), False, ""
        if measure and known is None:
            name = profiles.key(graph, place, {"env": envs.origin(env), "kind": place.devices[0].kind})
            kept = None if again else profiles.load(name)
            measured, cached = kept or Profile(), kept is not None
            if kept is None:
                measured = _measured(algorithm, env, graph, place, found.plans, machine is None, budget, announce)
                profiles.save(name, measured)
        return _choose(
            graph, Book(graph, place, measured, here=machine is None), found, wanted, permitted, name, cached
        )


def _candidates(graph: Graph, machine: Machine, permitted: Permitted) -> search.Candidates:
    """All that fit; of too many, those around the ones that look best by the model."""
    options = search.values(graph, machine, permitted)
    if search.count(options) <= search.EXHAUSTIVE:
        return search.candidates(graph, machine, permitted)
    book = Book(graph, machine)

    def score(plan: Plan) -> float | None:
        fits = search.sift(graph, machine, [plan]).plans
        return -floor(graph, plan, book) if fits else None

    return search.Candidates(tuple(plan for plan, _ in search.beam(options, score, keep=200).best))


@contextmanager
def profiling(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    graph: Graph,
    machine: Machine,
    plans: Sequence[Plan],
    announce: Announce = lambda text: None,
) -> Iterator[Profiling]:
    """What measures the candidates on this machine.

    Plans with the fewest parts come first: if there is no time for all, what they compute corrects the model of the
    others.
    """
    with Pools(graph, plans, announce) as pools:
        book = Book(graph, machine, Profile(environments=pools.fits()))
        ordered = sorted(plans, key=lambda plan: (search.size(plan), floor(graph, plan, book)))
        cuts = {cut for plan in cover(graph, ordered) for cut in plan.cuts()}
        traced = trace(algorithm, env, iterations=ITERATIONS, cuts=tuple({WHOLE, *cuts}))
        with Profiling(traced, ordered, pools, announce=announce, watcher=_meter) as found:
            yield found


def _measured(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    graph: Graph,
    machine: Machine,
    plans: Sequence[Plan],
    here: bool,
    budget: float,
    announce: Announce,
) -> Profile:
    """What is measured on this machine: for another one, the environments alone."""
    began = time.perf_counter()
    if not here:
        with Pools(graph, plans, announce) as pools:
            return Profile(environments=pools.fits(), about={"left out": "; ".join(pools.left_out)})
    with profiling(algorithm, env, graph, machine, plans, announce) as found:
        found.compile(began + budget * COMPILING)
        found.time(began + budget)
        return found.profile()


def _meter(reporter: Reporter) -> Meter:
    """What a run tells of each iteration, told to nobody."""
    meter = Meter(reporter.graph.steps_per_iteration, 0, lambda row: None, lambda text: None)
    meter.use(reporter.columns.names, reporter.columns.every)
    return meter


def _choose(
    graph: Graph, book: Book, found: search.Candidates, wanted: Objective, permitted: Permitted, name: str, cached: bool
) -> Choice:
    began = time.perf_counter()
    ranked, estimates = _ranked(graph, book, wanted, found.plans, KEEP)
    best = tuple(estimates[plan] for plan in ranked)
    refused = list(found.refused)
    for each in best:
        if not each.memory.fits:
            limit = f"{each.memory.limit / 1e9:,.1f} GB"
            refused.append(
                Refused(each.plan, (f"{each.memory.where} has {limit}, it needs {each.memory.bytes / 1e9:,.1f}",))
            )
    best = tuple(each for each in best if each.memory.fits)
    if not best:
        raise BadOption(f"No plan fits into the memory of {book.machine.name}: {refused[-1].reasons[0]} GB.")
    if not any(map(wanted.is_met, best)):
        nearest = best[0]
        raise BadOption(
            f"No plan meets {wanted}; the nearest is {nearest.plan.name} with {wanted.value(nearest):,.4g}. Ask for "
            "less, permit a lag, or give it a larger machine."
        )
    given_up, late = _given_up(graph, book, wanted, permitted, best[0])
    words = {**late, **found.words}
    seconds = time.perf_counter() - began
    return Choice(graph, book, wanted, best, tuple(refused), len(found.plans), given_up, words, name, cached, seconds)


def _given_up(
    graph: Graph, book: Book, wanted: Objective, permitted: Permitted, best: Estimate
) -> tuple[Estimate | None, Mapping[Plan, str]]:
    """What one more iteration of lag would bring, if the algorithm can learn from it."""
    more = permitted.lag + 1
    if graph.max_lag is not None and more > graph.max_lag:
        return None, {}
    found = search.candidates(graph, book.machine, replace(permitted, lag=more))
    late = [plan for plan in found.plans if any(link.lag == more for link in plan.links.values())]
    ranked, estimates = _ranked(graph, book, wanted, late, 1, above=wanted.score(best))
    better = estimates[ranked[0]] if ranked else None
    wins = better is not None and better.memory.fits and wanted.score(better) > wanted.score(best)
    return (better if wins else None), found.words


def _ranked(
    graph: Graph,
    book: Book,
    wanted: Objective,
    plans: Sequence[Plan],
    keep: int,
    above: float = float("-inf"),
) -> tuple[list[Plan], dict[Plan, Estimate]]:
    """The best of the plans. What does not fit into memory comes after everything that does."""
    estimates: dict[Plan, Estimate] = {}
    machine = book.machine
    idle = machine.hosts * (machine.idle_watts + sum(each.count * each.idle_watts for each in machine.devices))

    def score(plan: Plan) -> float:
        estimates[plan] = estimate(graph, plan, book)
        return wanted.score(estimates[plan]) if estimates[plan].memory.fits else float("-inf")

    def bound(plan: Plan) -> float:
        # An estimate is settled to within a part of a hundred.
        return wanted.best(floor(graph, plan, book) * 0.99, graph.steps_per_iteration, idle)

    return [plan for plan, _ in search.rank(plans, score, bound, keep, above).best], estimates


def _replays(machine: Machine) -> tuple[str | None, ...]:
    """Where a replay may lie: on a device of JAX, in the host's memory, or on an FPGA if there is one."""
    host: tuple[str | None, ...] = ("host",) if importlib.util.find_spec("numba") else ()
    return (None, *host, *(("opencl:0",) if machine.device("fpga") else ()))
