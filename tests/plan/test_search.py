"""The best plan is found without looking at all of them, and what does not fit is refused with its reasons."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import motet
from motet import planning
from motet.candidates import watts
from motet.engine.estimate import estimate, floor
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.plan import catalogue, objective, search
from motet.plan.check import violations
from motet.plan.cost import Book
from motet.plan.machine import Connection, Machine
from motet.plan.plan import Plan
from motet.plan.search import Permitted
from motet.plan.spread import spread
from tests.laws.cases import ALGORITHMS, traced


def drawn(seed: int) -> Machine:
    """Some small machine; every second one has no accelerator."""
    draw = random.Random(seed)
    if seed % 2:
        return Machine("drawn", draw.choice([2, 4, 8]), 1e11, (catalogue.processor("core", 1e11, 2),))
    device = replace(
        catalogue.a100_node().devices[0],
        count=draw.choice([1, 2, 4]),
        peak=10 ** draw.uniform(9, 13),
        latency=10 ** draw.uniform(-7, -5),
        launch=10 ** draw.uniform(-6, -4),
    )
    ways = {name: Connection(10 ** draw.uniform(-6, -3), 10 ** draw.uniform(7, 11)) for name in ("devices", "network")}
    return Machine("drawn", draw.choice([1, 2, 8]), 1e11, (device, catalogue.processor("core", 1e11)), ways)


def graph_of(name: str = "ppo") -> Graph:
    return traced(ALGORITHMS[name], motet.anakin())


@pytest.mark.parametrize("seed", range(5))
def test_the_best_is_that_of_looking_at_all(seed: int) -> None:
    graph, machine = graph_of(), drawn(seed)
    book = Book(graph, machine)
    found = search.candidates(graph, machine, Permitted(lag=1, presets=("anakin", "coarse", "multi_learner")))
    scores = {plan: estimate(graph, plan, book).steps_per_second for plan in found.plans}

    def bound(plan: Plan) -> float:
        return graph.steps_per_iteration / floor(graph, plan, book) * 1.01

    ranked = search.rank(found.plans, scores.__getitem__, bound, keep=3)
    assert [score for _, score in ranked.best] == sorted(scores.values(), reverse=True)[:3]
    assert all(bound(plan) >= score for plan, score in scores.items())  # or the best could be missed
    options = search.values(graph, machine, Permitted(lag=1, presets=("anakin", "coarse", "multi_learner")))
    wide = search.beam(options, machine, lambda plan: _score(graph, plan, book))
    assert wide.best[0][1] == pytest.approx(max(scores.values()))


@pytest.mark.parametrize("wanted", objective.UNITS)
@pytest.mark.parametrize("loop", ["ppo", "dqn-prioritised", "hosted"])
def test_what_is_chosen_is_the_best_of_all_presets_for_every_objective(loop: str, wanted: str) -> None:
    graph, machine = (hosted() if loop == "hosted" else graph_of(loop)), small()
    book, goal = Book(graph, machine), objective.parse(wanted)
    found = search.candidates(graph, machine, Permitted(lag=1, replays=(None, "host")))
    scores = {plan: goal.score(estimate(graph, plan, book)) for plan in found.plans}
    ranked, _ = planning._ranked(graph, book, goal, found.plans, 3)
    assert [scores[plan] for plan in ranked] == sorted(scores.values(), reverse=True)[:3]
    assert len(found.plans) > 20


def test_what_draws_least_for_a_step_may_be_another_plan_than_the_fastest() -> None:
    machine, env = thirsty(), motet.make("CartPole-v1")
    algorithm = motet.PPO(num_envs=256, num_steps=64, hidden=(256, 256))
    fast = planning.choose(algorithm, env, machine=machine, measure=False)
    frugal = planning.choose(algorithm, env, machine=machine, measure=False, objective="throughput-per-watt")
    assert fast.best.steps_per_second > frugal.best.steps_per_second
    assert fast.best.steps_per_joule < frugal.best.steps_per_joule
    assert "on cpu:0" in frugal.spelled(frugal.plan) and "on cpu:0" not in fast.spelled(fast.plan)


def test_of_too_many_candidates_those_are_kept_that_are_good_at_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What draws much may be the fastest, and is not looked at first where watts count."""
    machine, algorithm = thirsty(), motet.PPO(num_envs=256, num_steps=64, hidden=(256, 256))
    graph = trace(algorithm, motet.make("CartPole-v1"), iterations=50)
    may, book = planning.permitted(graph, machine), Book(graph, machine)
    every = planning.candidates(graph, machine, may).plans
    monkeypatch.setattr(search, "EXHAUSTIVE", 1)
    for wanted in map(objective.parse, objective.UNITS):
        found = planning.candidates(graph, machine, may, wanted)
        assert set(found.plans) <= set(found.words) and len(found.plans) > 3
        best = max(wanted.score(estimate(graph, plan, book)) for plan in every)
        first = max(wanted.score(estimate(graph, plan, book)) for plan in found.plans[:3])
        assert first == pytest.approx(best, rel=0.1)


def test_what_a_plan_draws_is_that_of_all_that_it_lies_on() -> None:
    machine = replace(catalogue.p100_cluster(), hosts=2)
    gpu, core = machine.devices
    idle = 2 * (machine.idle_watts + 4 * gpu.idle_watts + core.idle_watts)
    card, busy = gpu.watts - gpu.idle_watts, core.watts - core.idle_watts
    assert watts(motet.anakin(), machine) == pytest.approx(idle + card)
    assert watts(motet.anakin(8), machine) == pytest.approx(idle + 8 * card)
    assert watts(motet.coarse(2), machine) == pytest.approx(idle + 3 * card)
    assert watts(motet.sebulba(2, threads=2), replace(machine, hosts=1)) == pytest.approx(idle / 2 + 3 * card)
    assert watts(motet.pearl(replay="host"), machine) == pytest.approx(idle + 2 * card)
    many = replace(processors(4), idle_watts=10.0)
    assert watts(motet.coarse(2), many) == pytest.approx(10.0 + 3 * busy)
    assert watts(motet.coarse(9), many) == pytest.approx(10.0 + 4 * busy)


def test_places_count_among_candidates() -> None:
    graph, machine = hosted(), small()
    options = search.values(graph, machine, Permitted(lag=1))
    everything = list(search.every(options, machine))
    assert search.count(options, machine) == len(everything)
    assert sum("on cpu:0" in text for text, _ in everything) > len(everything) / 4
    assert search.count(options, machine, most=10) > 10
    assert search.count(options, processors(2)) < len(everything)


def test_parts_may_lie_on_a_processor_beside_an_accelerator() -> None:
    """Every choice of parts is a candidate, is what it says, and can be run where there are such devices."""
    graph, machine = hosted(), small()
    found = search.candidates(graph, machine, Permitted(lag=1, presets=("coarse",)))
    said = {text: plan for plan, text in found.words.items()}
    moved = said["coarse(actors=1) with actors on cpu:0"]
    assert moved in found.plans and not list(violations(graph, moved, {"cuda": 2, "cpu": 1}, traced=False))
    assert {name: each.place for name, each in moved.fragments.items()} == {"actors": "cpu:0", "learner": None}
    seats = spread(moved, machine)
    assert (seats["actors"][0].kind, seats["learner"][0].kind) == ("cpu", "gpu")
    plain = search.candidates(graph, processors(2), Permitted(lag=1, presets=("coarse",)))
    assert not any("on cpu:0" in text for text in plain.words.values())


def thirsty() -> Machine:
    """An accelerator that is somewhat faster than the processor, and draws much more."""
    card = catalogue.a100_node().devices[0]
    card = replace(card, count=1, watts=4000.0, idle_watts=1.0, latency=1e-6, launch=2e-6)
    return Machine("thirsty", 2, 1e11, (card, catalogue.processor("core", 1e11)))


def small() -> Machine:
    device = replace(catalogue.a100_node().devices[0], count=2, peak=1e11, latency=2e-6, launch=2e-5)
    return Machine("small", 2, 1e11, (device, catalogue.processor("core", 1e11)))


def processors(cores: int) -> Machine:
    return Machine("processors", cores, 1e11, (catalogue.processor("core", 1e11),))


def hosted() -> Graph:
    """An algorithm on environments that are not written in JAX."""
    return trace(motet.IMPALA(num_envs=8, num_steps=4), motet.make("gymnasium/CartPole-v1"), iterations=50)


def _score(graph: Graph, plan: Plan, book: Book) -> float | None:
    fits = search.sift(graph, book.machine, [plan]).plans
    return estimate(graph, plan, book).steps_per_second if fits else None


def test_who_cannot_be_among_the_best_is_not_looked_at() -> None:
    plans = [motet.coarse(2**each) for each in range(8)]
    looked: list[Plan] = []

    def score(plan: Plan) -> float:
        looked.append(plan)
        return plans.index(plan)

    ranked = search.rank(plans, score, lambda plan: plans.index(plan) + 0.5, keep=2)
    assert [plan for plan, _ in ranked.best] == [plans[7], plans[6]]
    assert looked == [plans[7], plans[6]] and ranked.looked_at == 2


def test_a_beam_finds_the_top_of_many() -> None:
    """More candidates than can be looked at: it sees few of them."""
    options = {"coarse": {"actors": range(1, 120), "learners": range(1, 120), "lag": (0,), "workers": (0,)}}
    assert search.count(options, processors(120)) > search.EXHAUSTIVE

    def score(plan: Plan) -> float:
        actors, learners = plan.fragments["actors"].replicas, plan.fragments["learner"].shards
        return -((actors - 37) ** 2) - (learners - 71) ** 2 - (actors - 37) * (learners - 71)

    ranked = search.beam(options, processors(120), score, keep=1)
    assert (ranked.best[0][0], ranked.best[0][1]) == (motet.coarse(37, learners=71), 0)
    assert ranked.looked_at < 2_000


def test_lag_is_permitted_by_the_user_and_by_the_algorithm() -> None:
    machine = drawn(0)

    def lags(name: str, lag: int) -> set[object]:
        found = search.candidates(graph_of(name), machine, Permitted(lag=lag, presets=("coarse",)))
        return {link.lag for plan in found.plans for link in plan.links.values()}

    assert lags("ppo", 0) == {0} and lags("ppo", 2) == {0, 1, 2}
    assert lags("a2c", 2) == {0}  # which cannot learn from lag
    assert lags("ppo", 9) == {0, 1, 2, 3, 4}


def test_candidates_need_no_trace_for_each_cut_and_say_why_others_do_not_fit() -> None:
    graph, machine = graph_of(), replace(drawn(1), cores=4)
    assert graph.cuts == ((1, 1),)
    found = search.candidates(graph, machine, Permitted())
    assert {plan.name for plan in found.plans} >= {"anakin", "sebulba"}
    assert any(fragment.cut.parts > 1 for plan in found.plans for fragment in plan.fragments.values())
    reasons = {each.plan.name: each.reasons[0] for each in found.refused}
    assert "statistic over the batch" in reasons["central"]
    assert "link 'sample' is for no value" in reasons["pearl"]  # there is no replay
    assert len({*found.plans}) == len(found.plans)


def test_the_same_plan_under_two_names_is_one_candidate() -> None:
    """With one device, `multi_learner(1)` is `anakin()`, and `coarse(1)` a `sebulba` of one thread."""
    graph = graph_of()
    found = search.sift(
        graph, drawn(0), [motet.anakin(), motet.multi_learner(1), motet.coarse(1), motet.sebulba(1, 1, lag=0)]
    )
    assert [plan.name for plan in found.plans] == ["anakin", "coarse"]


def test_host_environments_may_have_processes() -> None:
    env = motet.make("gymnasium/CartPole-v1")
    graph = trace(motet.A2C(num_envs=8, hidden=(8,)), env, iterations=5)
    found = search.candidates(graph, drawn(3), Permitted())
    workers = {fragment.workers for plan in found.plans for fragment in plan.fragments.values()}
    assert workers == {0, *search.doubling(drawn(3).cores)}
    assert not any(plan.name == "anakin" for plan in found.plans)


def test_an_objective_is_read() -> None:
    assert objective.parse("throughput") == objective.Objective()
    assert objective.parse("throughput >= 50_000") == objective.Objective("throughput", 5e4)
    assert objective.parse("time-per-update<=0.1") == objective.Objective("time-per-update", 0.1)
    for text in ("speed", "throughput <= 3", "throughput >= much", "throughput >= -1", ""):
        with pytest.raises(BadOption, match="An objective is one of throughput"):
            objective.parse(text)
