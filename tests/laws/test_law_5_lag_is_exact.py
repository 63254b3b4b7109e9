"""A lag of k is k under any delay, and runs with overlap repeat bit for bit.

Here by what the engine says; `test_law_5_contents.py` looks at what was computed.
"""

import random
import threading
import time
from dataclasses import replace

import pytest

import motet
from tests.laws.cases import ALGORITHMS, assert_differ, assert_identical, lags, learner, run, traced
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
        # Two actors; the first 1 + lag rounds act with the policy they were given at the start.
        assert lags(outcome)["policy"] == {lag: 2 * (ROUNDS - 1 - lag)}
        assert lags(outcome)["rollout"] == {0: 2 * ROUNDS}
        assert_identical(learner(graph, outcome), learner(graph, serial[0]))
    assert_identical(runs[0][1].seen, runs[1][1].seen)


@sharing("late-ppo")
def test_lag_changes_what_is_learned() -> None:
    """Otherwise the tests above would prove nothing. Steps are large enough to change what is done, not only how
    likely it was."""
    ppo, states = replace(ALGORITHMS["ppo"], learning_rate=3e-2), []
    for lag in (0, 1):
        plan = motet.coarse(2, lag=lag)
        graph = traced(ppo, plan, iterations=ROUNDS)
        states.append(learner(graph, run(graph, plan, iterations=ROUNDS)[0]))
    assert_differ(*states)


@sharing("late-ppo")
def test_without_lag_acting_is_never_ahead_of_learning() -> None:
    begun: dict[str, int] = {}
    ahead: list[int] = []
    lock = threading.Lock()

    def delay(name: str) -> None:
        with lock:
            begun[name] = begun.get(name, 0) + 1
            actors = [count for who, count in begun.items() if who != "learner"]
            ahead.append(max(actors, default=0) - begun.get("learner", 0))

    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["ppo"], plan, iterations=ROUNDS)
    run(graph, plan, iterations=ROUNDS, delay=delay)
    # An actor that has sent a rollout begins the next round, and there waits for the policy.
    assert len(ahead) == 3 * ROUNDS and max(ahead) <= 2


@sharing("late-ppo")
@pytest.mark.parametrize("lag", [1])
def test_lag_overlaps_acting_and_learning(lag: int) -> None:
    """The learner does not begin before both actors are `lag` rollouts further than it; so it must let them go on."""
    begun: dict[str, int] = {}
    changed = threading.Condition()

    def delay(name: str) -> None:
        with changed:
            begun[name] = begun.get(name, 0) + 1
            changed.notify_all()
            if name == "learner":
                due = min(begun[name] + lag, ROUNDS)
                assert changed.wait_for(lambda: min(begun.get(f"actors[{i}]", 0) for i in range(2)) >= due, 60)

    plan = motet.coarse(2, lag=lag)
    graph = traced(ALGORITHMS["ppo"], plan, iterations=ROUNDS)
    run(graph, plan, iterations=ROUNDS, delay=delay)
    assert begun == {"learner": ROUNDS, "actors[0]": ROUNDS, "actors[1]": ROUNDS}


def test_same_seed_same_run_other_seed_other_run() -> None:
    plan = motet.anakin()
    graph = traced(ALGORITHMS["ppo"], plan)
    first, again, other = (learner(graph, run(graph, plan, seed=seed)[0]) for seed in (1, 1, 2))
    assert_identical(first, again)
    assert_differ(first, other)
