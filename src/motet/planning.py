"""Choose a plan: measure what there is to measure, estimate every candidate, take the best.

choice = motet.planning.choose(motet.PPO(), motet.make("gymnasium/CartPole-v1"))
motet.train(motet.PPO(), "gymnasium/CartPole-v1", choice.plan)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from motet import envs
from motet.candidates import against, candidates, permitted, without
from motet.engine import profiles
from motet.engine.conditions import conditions
from motet.engine.detect import detect
from motet.engine.estimate import Estimate, estimate, floor
from motet.engine.pools import Pools
from motet.engine.profile import BUDGET, TIMING, Announce, Profiling, cover, describe
from motet.engine.raised import Raised
from motet.engine.run import Reporter
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.graph import WHOLE, Graph
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.plan import search
from motet.plan.cost import Book, Profile
from motet.plan.hosts import over
from motet.plan.machine import Machine
from motet.plan.objective import Objective, parse
from motet.plan.plan import Plan
from motet.plan.search import Permitted, Refused
from motet.runs.metrics import Meter

ITERATIONS = 1000
"""The length of run that is estimated: schedules of step sizes follow from it, speeds do not."""
KEEP = 6
"""Candidates that are estimated to the end, and shown."""
NEAR = 0.05
"""Plans that are behind the best by no more than this share are as good: of them, the one with the fewest parts and the
least lag is taken."""


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
    profile: str = ""
    """The key of the profile in the cache; empty: nothing was measured."""
    from_cache: bool = False
    seconds: float = 0.0
    """What choosing took, from the algorithm to the plan: all but profiling."""
    left_out: str = ""
    """What raised while it was profiled, and is no candidate; empty: nothing did."""
    hosts: int | None = None
    """Over how many hosts it is to lie; None: over as many as the machine has."""

    @property
    def plan(self) -> Plan:
        return over(self.best.plan, self.hosts)

    def spelled(self, plan: Plan) -> str:
        """A plan as one writes it."""
        return self.words.get(replace(plan, hosts=1)) or describe(plan)

    @property
    def best(self) -> Estimate:
        return self.estimates[0]

    @property
    def forgoes_much(self) -> bool:
        """Whether more lag would bring more than what counts as about as good."""
        if self.given_up is None:
            return False
        best, late = self.objective.score(self.best), self.objective.score(self.given_up)
        return late - best > NEAR * abs(best)

    @property
    def forgone(self) -> str:
        """What more lag would bring, in a sentence; empty: nothing."""
        late = self.given_up
        if late is None:
            return ""
        return (
            f"It keeps to lag {self.best.lag}: {self.spelled(late.plan)} would give {late.steps_per_second:,.0f} "
            f"steps/s, where the acting policy is {late.lag} iteration{'s' if late.lag != 1 else ''} old "
            f"(--max-lag {late.lag})."
        )


def choose(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    *,
    machine: Machine | None = None,
    hosts: int | None = None,
    objective: str = "throughput",
    lag: int | None = None,
    measure: bool = True,
    again: bool = False,
    known: Profile | None = None,
    budget: float = BUDGET,
    announce: Announce = lambda text: None,
) -> Choice:
    """The best plan for an algorithm on an environment, here or on a `machine` that is described.

    Here, what candidates compute is measured once and kept (`again` measures anew), unless it is `known`; for another
    machine it is modelled from what the loop computes, and environments are taken to be as fast as here. Without
    `measure` nothing is run. With `hosts` it is for so many machines of this kind, and the plan lies on all of them.

    Only plans that learn what one program learns are candidates, unless the algorithm says that it can learn from any
    lag: then one of 1 is permitted. `lag` permits more or less, up to what the algorithm says.
    """
    if lag is not None and lag < 0:
        raise BadOption(f"lag must be at least 0, got {lag}")
    if hosts is not None and hosts < 1:
        raise BadOption(f"hosts must be at least 1, got {hosts}")
    wanted, began = parse(objective), time.perf_counter()
    until, profiled = began + budget, 0.0
    with conditions():
        graph = trace(algorithm, env, iterations=ITERATIONS, cuts=(WHOLE,))
        alone = machine or detect()
        place = alone if hosts in (None, alone.hosts) else replace(alone, name=f"{hosts} x {alone.name}", hosts=hosts)
        may = permitted(graph, place, lag)
        found = without(candidates(graph, place, may, wanted), against(graph, place, Raised(), hosts))
        if not found.plans:
            reasons = dict.fromkeys(each.reasons[0] for each in found.refused)
            raise BadOption(f"No plan fits {algorithm!r} on {place.name}: {'; '.join([*reasons][:3])}")
        measured, cached, name = known or Profile(), False, ""
        if measure and known is None:
            about = {"env": envs.origin(env), "code": _code(env), "kind": place.devices[0].kind}
            name = profiles.key(graph, alone, about)
            kept = None if again else _thorough(profiles.load(name), budget)
            measured, cached = kept or Profile(), kept is not None
            if kept is None:
                start = time.perf_counter()
                plans = found.plans if place is alone else candidates(graph, alone, may, wanted).plans
                measured = _measured(algorithm, env, graph, alone, plans, machine is None, until, announce)
                measured = replace(measured, about={**measured.about, "budget": str(budget)})
                profiles.save(name, measured)
                profiled = time.perf_counter() - start
        raised = Raised.of(measured)
        speaks = against(graph, place, raised, hosts)
        found, said = without(found, speaks), raised.said(lambda plan: found.words.get(plan) or describe(plan))
        if not found.plans:
            raise BadOption(f"No plan is left for {algorithm!r} on {place.name}: {said}")
        book = Book(graph, place, measured, here=machine is None)
        chosen = _choose(graph, book, found, wanted, may, speaks)
        took = time.perf_counter() - began - profiled
        return replace(chosen, profile=name, from_cache=cached, seconds=took, left_out=said, hosts=hosts)


def _code(env: Environment | HostEnvironment) -> str:
    """What a host environment is made of; of one that is compiled, the graph has it."""
    return envs.code_of(env) if isinstance(env, HostEnvironment) else ""


def _thorough(kept: Profile | None, budget: float) -> Profile | None:
    """A profile that was kept, unless there is more time now for what there was no time for."""
    if kept is None or "no time was left" not in kept.about.get("left out", ""):
        return kept
    return kept if budget <= float(kept.about.get("budget", 0.0)) else None


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
        wanted = cover(graph, ordered, machine.devices[0].kind)
        cuts = {cut for plan in wanted for cut in plan.cuts()}
        traced = trace(algorithm, env, iterations=ITERATIONS, cuts=tuple({WHOLE, *cuts}))
        with Profiling(traced, wanted, pools, announce=announce, watcher=_meter) as found:
            yield found


def _measured(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    graph: Graph,
    machine: Machine,
    plans: Sequence[Plan],
    here: bool,
    until: float,
    announce: Announce,
) -> Profile:
    """What is measured on this machine until then: for another one, the environments alone."""
    if not here:
        with Pools(graph, plans, announce) as pools:
            return Profile(environments=pools.fits(), about={"left out": "; ".join(pools.left_out)})
    with profiling(algorithm, env, graph, machine, plans, announce) as found:
        found.compile(until - TIMING)
        found.time(until)
        return found.profile()


def _meter(reporter: Reporter) -> Meter:
    """What a run tells of each iteration, told to nobody."""
    meter = Meter(reporter.graph.steps_per_iteration, 0, lambda row: None, lambda text: None)
    meter.use(reporter.columns.names, reporter.columns.every)
    return meter


def _choose(
    graph: Graph,
    book: Book,
    found: search.Candidates,
    wanted: Objective,
    may: Permitted,
    against: Callable[[Plan], str] = lambda plan: "",
) -> Choice:
    ranked, estimates = _ranked(graph, book, wanted, found.plans, KEEP)
    best = tuple(estimates[plan] for plan in ranked)
    refused = list(found.refused)
    for each in best:
        if not each.memory.fits:
            limit = f"{each.memory.limit / 1e9:,.1f} GB"
            refused.append(
                Refused(each.plan, (f"{each.memory.where} has {limit}, it needs {each.memory.bytes / 1e9:,.1f}",))
            )
    best = _simplest_first(tuple(each for each in best if each.memory.fits), wanted)
    if not best:
        raise BadOption(f"No plan fits into the memory of {book.machine.name}: {refused[-1].reasons[0]} GB.")
    if not any(map(wanted.is_met, best)):
        nearest = best[0]
        spelled = found.words.get(nearest.plan) or describe(nearest.plan)
        raise BadOption(
            f"No plan meets {wanted}; the nearest is {spelled} with {wanted.said(nearest)}. Ask for less, permit a "
            "lag, or give it a larger machine."
        )
    given_up, late = _given_up(graph, book, wanted, may, best, against)
    words = {**late, **found.words}
    return Choice(graph, book, wanted, best, tuple(refused), len(found.plans), given_up, words)


def _simplest_first(found: tuple[Estimate, ...], wanted: Objective) -> tuple[Estimate, ...]:
    """Of those that are about as good as the best, the simplest one comes first."""
    if not found:
        return found
    best = wanted.score(found[0])
    near = [each for each in found if best - wanted.score(each) <= NEAR * abs(best) and wanted.is_met(each)]
    first = min(near, key=lambda each: (search.size(each.plan), each.lag == "latest" or each.lag), default=found[0])
    return (first, *(each for each in found if each is not first))


def _given_up(
    graph: Graph,
    book: Book,
    wanted: Objective,
    may: Permitted,
    best: Sequence[Estimate],
    against: Callable[[Plan], str],
) -> tuple[Estimate | None, Mapping[Plan, str]]:
    """What one more iteration of lag would bring, if the algorithm can learn from it."""
    more = may.lag + 1
    if graph.max_lag is not None and more > graph.max_lag:
        return None, {}

    def is_late(plan: Plan) -> bool:
        return any(link.lag == more for link in plan.links.values())

    found = without(search.candidates(graph, book.machine, replace(may, lag=more), is_late), against)
    above = max(map(wanted.score, best))
    ranked, estimates = _ranked(graph, book, wanted, found.plans, 1, above=above)
    better = estimates[ranked[0]] if ranked else None
    wins = better is not None and better.memory.fits and wanted.score(better) > above
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
