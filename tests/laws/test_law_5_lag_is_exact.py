"""A lag of k is k under any delay, and runs with overlap repeat bit for bit."""

import random
import threading
import time

import pytest

import motet
from tests.laws.cases import ALGORITHMS, assert_identical, learner, run, traced
from tests.sharing import grouped, sharing

ROUNDS = 6


def jitter(seed: int):
    """Sleep a random while before each iteration of each replica."""
    chance, lock = random.Random(seed), threading.Lock()

    def delay(name: str) -> None:
        with lock:
            seconds = chance.random() * 0.03
        time.sleep(seconds)

    return delay


CASES = [("ppo", 0), ("ppo", 1), ("ppo", 3), ("dqn", 1), ("sac", 1)]


@pytest.mark.parametrize(("name", "lag"), grouped(CASES, "late-"))
def test_every_value_is_exactly_as_old_as_the_plan_says(name: str, lag: int) -> None:
    plan = motet.coarse(2, lag=lag)
    graph = traced(ALGORITHMS[name], plan, iterations=ROUNDS)
    runs = [run(graph, plan, iterations=ROUNDS, delay=jitter(seed)) for seed in (1, 2)]
    serial = run(graph, plan, iterations=ROUNDS, mode="serial")
    for outcome, _ in runs:
        lags = {flown.link: dict(flown.lags) for flown in outcome.links}
        # Two actors; the first 1 + lag rounds act with the policy they were given at the start.
        assert lags["policy"] == {lag: 2 * (ROUNDS - 1 - lag)}
        assert lags["rollout"] == {0: 2 * ROUNDS}
        assert_identical(learner(graph, outcome), learner(graph, serial[0]))
    assert_identical(runs[0][1].seen, runs[1][1].seen)


@sharing("late-ppo")
def test_lag_changes_what_is_learned() -> None:
    """Otherwise the tests above would prove nothing."""
    states = []
    for lag in (0, 1):
        plan = motet.coarse(2, lag=lag)
        graph = traced(ALGORITHMS["ppo"], plan, iterations=ROUNDS)
        states.append(learner(graph, run(graph, plan, iterations=ROUNDS)[0]))
    assert any((a != b).any() for a, b in zip(*states, strict=True))


@sharing("late-ppo")
def test_lag_overlaps_acting_and_learning() -> None:
    """With a lag of 1 the actors have begun the next rollout before the learner has finished; without, never."""

    def most_ahead(lag: int) -> int:
        begun: dict[str, int] = {}
        ahead = [0]
        lock = threading.Lock()

        def delay(name: str) -> None:
            if name == "learner":
                time.sleep(0.05)
            with lock:
                begun[name] = begun.get(name, 0) + 1
                actors = [count for who, count in begun.items() if who != "learner"]
                ahead[0] = max(ahead[0], max(actors, default=0) - begun.get("learner", 0))

        plan = motet.coarse(2, lag=lag)
        graph = traced(ALGORITHMS["ppo"], plan, iterations=ROUNDS)
        run(graph, plan, iterations=ROUNDS, delay=delay)
        return ahead[0]

    # An actor that has sent a rollout begins the next round, and there waits for the policy.
    assert most_ahead(0) <= 2
    assert most_ahead(2) >= 4


@sharing("late-dqn")
def test_latest_never_waits_and_is_measured() -> None:
    plan = motet.coarse(2, lag="latest")
    graph = traced(ALGORITHMS["dqn"], plan, iterations=ROUNDS)
    outcome, watcher = run(graph, plan, iterations=ROUNDS, delay=jitter(3))
    lags = next(flown.lags for flown in outcome.links if flown.link == "policy")
    assert all(lag >= 0 for lag in lags)
    assert len(watcher.seen) == ROUNDS


def test_same_seed_same_run_other_seed_other_run() -> None:
    plan = motet.anakin()
    graph = traced(ALGORITHMS["ppo"], plan)
    first, again, other = (learner(graph, run(graph, plan, seed=seed)[0]) for seed in (1, 1, 2))
    assert_identical(first, again)
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
