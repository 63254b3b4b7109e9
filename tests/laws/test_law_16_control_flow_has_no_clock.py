"""How many iterations a call has, when the state is looked at and how slow a worker is changes no number."""

from __future__ import annotations

import time

import motet
from motet.engine import guard
from tests.laws.cases import ALGORITHMS, assert_identical, learner, run, traced
from tests.sharing import sharing

ROUNDS = 9


@sharing("clockless")
def test_the_number_of_iterations_in_a_call_changes_nothing() -> None:
    plan = motet.anakin()
    graph = traced(ALGORITHMS["dqn-prioritised"], plan, iterations=ROUNDS)
    whole, rows = run(graph, plan, iterations=ROUNDS)
    for most in (1, 2, 5):
        other, others = run(graph, plan, iterations=ROUNDS, delay=lambda _, most=most: most)  # type: ignore[misc]
        assert_identical(learner(graph, whole), learner(graph, other))
        assert_identical(rows.seen, others.seen)


@sharing("clockless")
def test_looking_at_the_state_changes_nothing(monkeypatch) -> None:
    plan = motet.coarse(2, lag=1)
    graph = traced(ALGORITHMS["ppo"], plan, iterations=ROUNDS)
    seldom, rows = run(graph, plan, iterations=ROUNDS)
    monkeypatch.setattr(guard, "EVERY", 1)
    monkeypatch.setattr(guard.Guard.__init__, "__defaults__", (0.0,))  # at the learner state, in every iteration
    often, others = run(graph, plan, iterations=ROUNDS, delay=lambda _: time.sleep(0.01))
    assert_identical(learner(graph, seldom), learner(graph, often))
    assert_identical(rows.seen, others.seen)
