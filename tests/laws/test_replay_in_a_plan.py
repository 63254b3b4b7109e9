"""Where a replay lies and how far ahead it draws are choices of a plan, with the same exactness as all others."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import motet
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.replay.store import Store
from tests.laws.cases import (
    ALGORITHMS,
    REPLAY,
    Outcome,
    assert_close,
    assert_differ,
    assert_identical,
    assert_traffic,
    carried,
    lags,
    learner,
    pair,
    run,
    traced,
)
from tests.sharing import sharing

ROUNDS = 6


def jitter(seed: int) -> Any:
    chance = random.Random(seed)
    return lambda who: time.sleep(chance.random() * 0.02)


def flown(name: str, plan: Plan, **options: Any) -> tuple[Graph, Outcome]:
    graph = traced(ALGORITHMS[name], plan, iterations=ROUNDS)
    return graph, run(graph, plan, iterations=ROUNDS, **options)[0]


@pytest.mark.parametrize("prefetch", [1, 2])
def test_priorities_are_exactly_as_late_as_the_plan_says(prefetch: int) -> None:
    """Law 5 inside an iteration: rounds count on from one iteration to the next, whatever the delays."""
    plan = motet.pearl(lag=1, prefetch=prefetch)
    graph, outcome = flown("dqn-prioritised", plan, delay=jitter(1))
    rounds = ROUNDS * REPLAY["gradient_steps"]
    assert lags(outcome)["priorities"] == {prefetch: rounds - 1 - prefetch}
    assert_traffic(graph, plan, outcome, ROUNDS)
    again, _ = run(graph, plan, iterations=ROUNDS, delay=jitter(2))
    serial, _ = run(graph, plan, iterations=ROUNDS, mode="serial")
    assert_identical(learner(graph, outcome), learner(graph, again))
    assert_identical(learner(graph, outcome), learner(graph, serial))


def test_drawing_ahead_changes_what_is_learned_only_where_priorities_come_back() -> None:
    strict, ahead = motet.pearl(lag=0), motet.pearl(lag=0, prefetch=1)
    assert_identical(learner(*flown("dqn", strict)), learner(*flown("dqn", ahead)))
    assert_differ(learner(*flown("dqn-prioritised", strict)), learner(*flown("dqn-prioritised", ahead)))


class Notes:
    """What a store was asked for, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.calls: list[tuple[str, set[tuple[int, int]]]] = []
        sample, update = Store.sample, Store.update

        def noted_sample(store: Store, *values: Any, **options: Any) -> Any:
            drawn = sample(store, *values, **options)
            self.calls.append(("sample", self.items(drawn.index)))
            return drawn

        def noted_update(store: Store, index: Any, priority: Any) -> None:
            self.calls.append(("update", self.items(index)))
            update(store, index, priority)

        monkeypatch.setattr(Store, "sample", noted_sample)
        monkeypatch.setattr(Store, "update", noted_update)

    @staticmethod
    def items(index: Any) -> set[tuple[int, int]]:
        return {(int(row), int(column)) for row, column in np.asarray(index) if row >= 0}

    def drawn_in_flight(self) -> int:
        """How many items were drawn while an earlier draw of them was not answered."""
        flying: list[set[tuple[int, int]]] = []
        found = 0
        for what, items in self.calls:
            if what == "sample":
                found += sum(len(items & batch) for batch in flying)
                flying.append(items)
            elif items:
                flying.remove(items)
        return found


@pytest.mark.parametrize("exclusive", [False, True])
def test_items_in_flight_are_not_drawn_twice_if_one_asks_for_it(
    exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exclusive(motet.DQN):
        @property
        def replay(self) -> motet.Prioritised:
            return motet.Prioritised(self.buffer_size, alpha=1.0, exclusive=exclusive)

    notes = Notes(monkeypatch)
    plan = motet.pearl(lag=0, prefetch=2, replay="host")
    algorithm = Exclusive(**REPLAY, prioritised=True, n_step=1)
    graph = traced(algorithm, plan, iterations=ROUNDS)
    run(graph, plan, iterations=ROUNDS)
    assert sum(what == "sample" for what, _ in notes.calls) == ROUNDS * REPLAY["gradient_steps"]
    assert (notes.drawn_in_flight() == 0) is exclusive


def test_holding_back_what_was_drawn_is_the_same_inside_and_outside_of_xla() -> None:
    class Exclusive(motet.DQN):
        @property
        def replay(self) -> motet.Prioritised:
            return motet.Prioritised(self.buffer_size, exclusive=True)

    found = []
    for plan in (motet.anakin(), motet.pearl(lag=0, replay="host")):
        graph = traced(Exclusive(**REPLAY, prioritised=True, n_step=1), plan)
        found.append(learner(graph, run(graph, plan)[0]))
    assert_close(*found)  # two programs, which not every processor rounds alike


def test_acting_never_runs_away_from_learning_even_with_the_latest_policy() -> None:
    """Bounded links are the limiter: an actor is at most so many rollouts ahead as fit on its way to the learner."""
    plan = motet.pearl(lag="latest")
    graph = traced(ALGORITHMS["dqn"], plan, iterations=12)
    done = {"actors": 0, "replay": 0, "learner": 0}
    lead: list[int] = []

    def delay(who: str) -> None:
        if who == "learner":
            time.sleep(0.02)
        lead.append(done["actors"] - done["learner"])
        done[who] += 1

    outcome, _ = run(graph, plan, iterations=12, delay=delay)
    assert done == {"actors": 12, "replay": 12, "learner": 12}
    assert 1 <= max(lead) <= 4
    assert carried(outcome)["sample", "replay", "learner"][0] == 12 * REPLAY["gradient_steps"]


def test_each_part_says_how_fast_it_was_and_whom_it_waited_for() -> None:
    plan = motet.pearl(lag=1)
    graph = traced(ALGORITHMS["dqn"], plan, iterations=12)

    def delay(who: str) -> None:
        time.sleep(0.1 if who == "actors" else 0)

    outcome, _ = run(graph, plan, iterations=12, delay=delay)
    parts = {part.name: part for part in outcome.accounts}
    assert set(parts) == {"actors", "replay", "learner"}
    # Whom each waited for most comes first. How long depends on the machine; that actors waited less does not.
    for_actors = parts["replay"].waited["actors"]
    assert next(iter(parts["replay"].waited)) == "actors"
    assert next(iter(parts["learner"].waited)) == "replay"
    assert sum(parts["actors"].waited.values()) < for_actors <= 1
    # Actors sleep a tenth of a second before each iteration, and nobody gets ahead of them.
    assert all(0 < part.iterations_per_second < 12 for part in parts.values())


def test_a_replay_on_the_host_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even after an error in the middle of a run."""
    closed = []
    close = Store.close
    monkeypatch.setattr(Store, "close", lambda store: (closed.append(store), close(store))[1])

    def fails(store: Store, *_: Any) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(Store, "update", fails)
    plan = motet.pearl(lag=0, replay="host")
    graph = traced(ALGORITHMS["dqn-prioritised"], plan)
    with pytest.raises(RuntimeError, match="on fire"):
        run(graph, plan)
    assert len(closed) == 1


class Gloomy(motet.DQN):
    """Its errors are below 0."""

    def gradient(self, weights: Any, sample: Any) -> Any:
        gradients, metrics, errors = super().gradient(weights, sample)
        return gradients, metrics, -1.0 - errors


@pytest.mark.parametrize("replay", [None, "host"])
def test_a_priority_below_zero_names_the_item(replay: str | None) -> None:
    plan = motet.pearl(lag=0, replay=replay)
    graph = traced(Gloomy(**REPLAY, prioritised=True), plan)
    with pytest.raises(motet.MotetError, match=r"The priority of the item in row \d+ of environment \d is -"):
        run(graph, plan)


def test_batches_need_enough_to_draw_from() -> None:
    few = {**REPLAY, "learning_starts": 0, "num_envs": 4, "train_frequency": 1}
    with pytest.raises(motet.BadOption, match=r"A batch of 16 items is larger than the 4 .*learning_starts"):
        motet.trace(motet.DQN(**few, n_step=1), motet.make("CartPole-v1"))
    with pytest.raises(motet.BadOption, match="A batch of 512 items is larger than the replay, which holds 256"):
        motet.trace(motet.DQN(**{**REPLAY, "batch_size": 512}), motet.make("CartPole-v1"))


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan({"all": motet.Fragment(("*",), place="host")}), "only a replay can be, but it holds node 'act'"),
        (motet.pearl(replay="disk"), 'place must look like "cpu:0", "host" or "opencl:0", got \'disk\''),
        (
            Plan(
                {"r": motet.Fragment(("remember", "sample"), place="host", replicas=2), "all": motet.Fragment(("*",))}
            ),
            "a replay on 'host' is in one piece",
        ),
        (motet.coarse(2, learners=2), "node 'sample' draws from one distribution over all environments"),
        (
            Plan({"a": motet.Fragment(("env",)), "all": motet.Fragment(("*",))}, {"decision": motet.Link(1)}),
            "link 'decision' cannot lag",
        ),
    ],
)
def test_what_a_replay_cannot_do_is_said_before_anything_starts(plan: Plan, said: str) -> None:
    graph = traced(ALGORITHMS["dqn-prioritised"], plan)
    with pytest.raises(motet.BadPlan) as caught:
        motet.check(graph, plan, 4)
    assert said in str(caught.value)


@sharing("dqn-prioritised")
def test_shards_may_draw_from_trees_of_their_own_if_the_plan_says_so() -> None:
    plan = Plan({"all": motet.Fragment(("*",), shards=2)}, per_replica=("sample",))
    graph = traced(ALGORITHMS["dqn-prioritised"], plan)
    outcome, _ = run(graph, plan)
    whole = pair("dqn-prioritised", "anakin-1")
    assert all(np.isfinite(leaf).all() for leaf in learner(graph, outcome))
    assert_differ(learner(graph, outcome), learner(*whole[:2]))
