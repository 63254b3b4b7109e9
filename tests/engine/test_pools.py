"""What steps of host environments take: by themselves, and as a program asks for them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import motet
from motet.engine.pools import Pools, Steps, more_in_training
from motet.engine.profile import Profiling, are_steady, cover, items_of
from motet.engine.stopwatch import mostly
from motet.flow.graph import WHOLE
from motet.flow.trace import trace
from tests.laws.host_envs import Numbered

COUNT, SECONDS = 2, 5e-3
"""Environments, and what each takes for a step."""


class Sleepy(Numbered):
    """Takes its time, and leaves Python's lock to others meanwhile."""

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return super().step(action)


def profiled() -> Any:
    """Pools of these environments, and the profile of a plan that asks them from inside of its one program."""
    algorithm = motet.A2C(num_envs=COUNT, num_steps=4, hidden=(8,))
    graph = trace(algorithm, motet.Gymnasium(Sleepy), iterations=50, cuts=(WHOLE,))
    plan = motet.multi_learner(1)
    with Pools(graph, [plan]) as pools, Profiling(graph, cover(graph, [plan], "cpu"), pools) as found:
        found.compile(time.perf_counter() + 60)
        found.time(time.perf_counter() + 0.1)
        return pools, found.profile()


def test_what_a_program_asks_for_is_timed_inside_of_it() -> None:
    pools, found = profiled()
    (pool,) = pools.holding(COUNT)
    assert len(pool.inside) >= 1 and not found.about["left out"]
    asleep = COUNT * SECONDS
    assert asleep * 0.9 < mostly(pool.inside) < 3 * asleep
    assert asleep < mostly(pool.paused.seconds) < 3 * asleep
    assert found.environments["0"].at(COUNT).seconds == pool.seconds(rested=False)
    assert found.rested["0"].at(COUNT).seconds == pool.seconds(rested=True)
    assert found.locked["0"] < 0.5  # most of a step is asleep
    # The program's own time is without them, in the same profile.
    assert all(seconds < asleep for fit in found.calls.values() for _, seconds in fit.points)


def test_episodes_that_end_less_often_in_training_make_steps_shorter() -> None:
    """A step takes 1, and half as long again for each episode that ends in it."""
    ended = [0, 1, 0, 2] * 20
    seen = Steps([1 + 0.5 * each for each in ended], ended)
    more = more_in_training([seen], count=4, limit=500)
    often = 2 / 500  # half of the limit
    assert more == pytest.approx(1 + 0.5 * 4 * often - np.mean(seen.seconds))
    assert more_in_training([seen], count=4, limit=None) == 0.0
    assert more_in_training([Steps([1.0] * 9, [0] * 9)], count=4, limit=500) == 0.0
    short = more_in_training([seen], count=4, limit=2)  # each step would end all of them
    assert short == pytest.approx(1 + 0.5 * 4 - np.mean(seen.seconds)) and short > 0


def test_a_step_that_something_else_held_up_tells_nothing_of_episodes() -> None:
    ended = [0, 1, 0, 2] * 20
    seconds = [1 + 0.5 * each for each in ended]
    held_up = Steps([*seconds, 90.0], [*ended, 0])
    usual = Steps(seconds, ended)
    assert more_in_training([held_up], 4, 500) == pytest.approx(more_in_training([usual], 4, 500), rel=0.05)


@pytest.mark.parametrize(("left", "rounds"), [(-10.0, 1), (0.02, 2), (0.4, 5)])
def test_timing_is_over_when_it_should_be(left: float, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second round is worth being a little late for; a first one there must be."""
    done: list[float] = []

    def round_(profiling: Profiling, seconds: float) -> None:
        time.sleep(0.05)
        done.append(seconds)

    monkeypatch.setattr(Profiling, "round", round_)
    graph = trace(motet.A2C(num_envs=COUNT, num_steps=4, hidden=(8,)), motet.make("CartPole-v1"), iterations=9)
    with Pools(graph, []) as pools, Profiling(graph, {}, pools) as found:
        monkeypatch.setattr(found.company, "measure", lambda: None)
        found.time(time.perf_counter() + left)
    assert len(done) == rounds


@pytest.mark.parametrize(("steady_after", "rounds"), [(0, 5), (8, 9), (1000, 10)])
def test_timing_goes_on_until_what_it_finds_is_steady(
    steady_after: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more round must have changed nothing much; where that never comes to be, it is over all the same."""
    done: list[float] = []
    monkeypatch.setattr(Profiling, "round", lambda profiling, seconds: done.append(seconds))
    monkeypatch.setattr(Profiling, "_levels", lambda profiling: [1.0, 1.1 ** min(len(done), steady_after)])
    graph = trace(motet.A2C(num_envs=COUNT, num_steps=4, hidden=(8,)), motet.make("CartPole-v1"), iterations=9)
    with Pools(graph, []) as pools, Profiling(graph, {}, pools) as found:
        monkeypatch.setattr(found.company, "measure", lambda: None)
        found.time(time.perf_counter() + 60)
    assert len(done) == rounds


def test_steadiness_looks_at_plans_and_at_environments() -> None:
    """At an iteration of a plan, in one program or in several, and at a step of the environments."""
    algorithm = motet.A2C(num_envs=COUNT, num_steps=4, hidden=(8,))
    plans = [motet.multi_learner(1), motet.sebulba(threads=1, lag=0)]
    graph = trace(algorithm, motet.Gymnasium(Sleepy), iterations=50, cuts=(WHOLE, *(plans[1].cuts())))
    with Pools(graph, plans) as pools, Profiling(graph, cover(graph, plans, "cpu"), pools) as found:
        found.compile(time.perf_counter() + 60)
        found.time(time.perf_counter() + 0.1)
        whole, cut, step = found._levels()
        assert step >= 2 * COUNT * SECONDS  # with a pause, and with a rest
        assert whole == found.profile().calls[next(key for key, _ in items_of(graph, plans[0], "cpu"))].points[0][1]
        (_, timed) = (each.spent for each in found.trials)
        assert 0.3 < cut / (timed.wall / timed.count) <= 1.1


def test_steady_is_what_one_more_round_does_not_change() -> None:
    assert are_steady([1.0, 2.0], [1.01, 1.98]) and not are_steady([1.0, 2.0], [1.0, 2.3])
    assert not are_steady([1.0, 2.0], [1.0])  # one of them failed
