"""How old a value is, read off the value: not what the engine says of it, but what was computed with it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import motet
from motet.plan.plan import Fragment, Link, Plan
from tests.laws.cases import lags, run, state, traced
from tests.laws.witnesses import ENVS, FIRST_PRIORITY, STEPS, Clock, Diary, Echo
from tests.sharing import sharing

ROUNDS = 7
NESTED = Clock(rounds=(2, 2))


def jitter(seed: int, longest: float = 0.01) -> Callable[[str], None]:
    """Sleep a random while before each iteration of each replica."""
    chance, lock = random.Random(seed), threading.Lock()

    def delay(name: str) -> None:
        with lock:
            seconds = chance.random() * longest
        time.sleep(seconds)

    return delay


def watch(algorithm: Clock, plan: Plan, rounds: int = ROUNDS, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The version of the policy that each environment was given in each iteration, [iterations, environments], and
    what gradients were computed with, [updates, 2]."""
    return watched(algorithm, plan, rounds, **options)[:2]


def watched(algorithm: Clock, plan: Plan, rounds: int, **options: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    graph = traced(algorithm, plan, Diary(pages=rounds * STEPS), iterations=rounds)
    outcome, _ = run(graph, plan, iterations=rounds, **options)
    pages = np.asarray(state(graph, outcome, "env").state[0]).reshape(ENVS, rounds, STEPS)
    assert (pages == pages[:, :, :1]).all(), "a policy changed in the middle of a rollout"
    learner = state(graph, outcome, "learner")
    assert int(learner.updates) == rounds * algorithm.updates
    return pages[:, :, 0].T, np.asarray(learner.seen), outcome


def apart(names: Iterable[str]) -> list[Any]:
    """Tests of one plan share what is compiled for it."""
    return [pytest.param(name, marks=sharing(f"versions {name}")) for name in names]


def central(lag: int) -> Plan:
    workers = {"workers": Fragment(("*",), replicas=2), "server": Fragment(("apply",))}
    return Plan(workers, {"policy": Link(lag)})


LATE: dict[str, tuple[Clock, Plan, int, int]] = {
    # algorithm, plan, how late acting is, how late gradients are
    "whole": (NESTED, motet.anakin(), 0, 0),
    "sharded": (NESTED, motet.anakin(2), 0, 0),
    "coarse": (NESTED, motet.coarse(2), 0, 0),
    "coarse, 1 late": (NESTED, motet.coarse(2, lag=1), 1, 0),
    "coarse, 3 late": (NESTED, motet.coarse(4, lag=3), 3, 0),
    "coarse, 1 late, learners sharded": (NESTED, motet.coarse(2, learners=2, lag=1), 1, 0),
    "sebulba": (NESTED, motet.sebulba(1, 2, lag=2), 2, 0),
    "fine": (NESTED, motet.fine(2), 0, 0),
    "central": (NESTED, motet.central(2), 0, 0),
    "central, 1 late": (Clock(), central(1), 1, 1),
    "central, 2 late": (Clock(), central(2), 2, 2),
    "pearl, 1 late": (Echo(), motet.pearl(2, lag=1), 1, 0),
}


@pytest.mark.parametrize("mode", ["threads", "serial"])
@pytest.mark.parametrize("name", apart(LATE))
def test_each_value_is_that_of_exactly_so_many_iterations_before(name: str, mode: str) -> None:
    algorithm, plan, acting, learning = LATE[name]
    acted, seen = watch(algorithm, plan, mode=mode, delay=jitter(1))
    each, iteration = algorithm.updates, np.arange(ROUNDS)
    expected = np.maximum(iteration - acting, 0) * each
    np.testing.assert_array_equal(acted, np.broadcast_to(expected[:, None], acted.shape))
    if not isinstance(algorithm, Echo):
        update = np.maximum(np.arange(ROUNDS * each) - learning * each, 0)
        np.testing.assert_array_equal(seen, np.stack([update, update**2], 1))


@pytest.mark.parametrize("mode", ["threads", "serial"])
@pytest.mark.parametrize("prefetch", [0, 1, 2, 4])
def test_a_draw_knows_the_priorities_of_exactly_so_many_rounds_before(prefetch: int, mode: str) -> None:
    """Rounds count on from one iteration to the next: an iteration has fewer of them than the last case is late."""
    _, seen = watch(Echo(), motet.pearl(2, lag=0, prefetch=prefetch), mode=mode, delay=jitter(2))
    rounds = np.arange(len(seen))
    newest = np.maximum(rounds - prefetch, 0) + FIRST_PRIORITY
    np.testing.assert_array_equal(seen, np.stack([newest, newest**2], 1))


LATEST: dict[str, tuple[Clock, Plan]] = {
    "coarse": (NESTED, motet.coarse(2, lag="latest")),
    "sebulba": (NESTED, motet.sebulba(1, 2, lag="latest")),
    "pearl": (Echo(), motet.pearl(2, lag="latest")),
    "central": (NESTED, motet.central(2, lag="latest")),  # in each round of two loops, from several senders
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", apart(LATEST))
def test_the_latest_value_is_never_older_than_one_seen_before(name: str, seed: int) -> None:
    """Neither where acting sees it nor where gradients do, whichever of a link's ways it came."""
    algorithm, plan = LATEST[name]
    rounds = 60
    acted, seen = watch(algorithm, plan, rounds, delay=jitter(seed, 0.002))
    assert (np.diff(acted, axis=0) >= 0).all()
    newest = np.arange(rounds)[:, None] * algorithm.updates
    assert (acted <= newest).all()
    assert (np.diff(seen[:, 0]) >= 0).all()
    assert (seen[:, 0] <= np.arange(len(seen)) + FIRST_PRIORITY).all()


@pytest.mark.parametrize("name", apart(LATEST))
def test_something_newer_is_delivered(name: str) -> None:
    """Links that go forward are bounded, so who sends on them cannot run away from whoever answers: a few iterations
    after the start it has seen an answer, and goes on to see newer ones."""
    algorithm, plan = LATEST[name]
    rounds = 20
    acted, _ = watch(algorithm, plan, rounds, delay=jitter(4, 0.002))
    assert (acted[0] == 0).all()
    assert (acted[-1] > acted[rounds // 2]).all() and (acted[rounds // 2] > 0).all()


@pytest.mark.parametrize("lag", [0, 2, "latest"])
def test_the_lags_that_a_run_reports_are_those_of_its_contents(lag: Any) -> None:
    """A value is counted when it comes: where an actor's policy is another than in the iteration before."""
    actors, rounds = 2, 20
    acted, _, outcome = watched(NESTED, motet.coarse(actors, lag=lag), rounds, delay=jitter(5, 0.005))
    of_actor = acted[:, :: ENVS // actors]
    iteration, actor = np.nonzero(np.diff(of_actor, axis=0))
    ages = iteration + 1 - of_actor[iteration + 1, actor] // NESTED.updates
    assert lags(outcome)["policy"] == Counter(ages.tolist())
    assert len(ages) >= actors
