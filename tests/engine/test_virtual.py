"""A virtual clock drives the workers that threads drive, and takes as long as they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import motet
from benchmarks import sleeping
from motet.engine import threads
from motet.engine.clock import Clock, Resources, Use
from motet.engine.rehearse import workers_of
from motet.engine.requests import Compute, Consult, Request, Stack
from motet.engine.virtual import Channel, simulate
from motet.engine.worker import Worker
from motet.errors import Stalled
from motet.plan.plan import Plan
from tests.laws.cases import ALGORITHMS, traced


@dataclass
class Given:
    """Seconds of each fragment's calls, and of each message on its way."""

    seconds: dict[str, float]
    way: float = 0.0
    on: Any = None

    def request(self, worker: Worker, request: Request) -> Sequence[Use]:
        if not isinstance(request, (Compute, Consult)):
            return ()
        return (Use(self.seconds.get(worker.fragment, 1.0), self.on, label="compute"),)

    def message(self, channel: Channel) -> Sequence[Use]:
        return (Use(self.way),) if self.way else ()


def steady(plan: Plan, costs: Given, name: str = "learner", algorithm: str = "a2c", **more: Any) -> float:
    """How long an iteration takes in the end."""
    graph = traced(ALGORITHMS[algorithm], plan)
    found = simulate(*workers_of(graph, plan), 14, costs, **more)
    took = np.diff(found.finished(name))[7:]
    np.testing.assert_allclose(took, took[0])
    return float(took[0])


@pytest.mark.parametrize(
    ("lag", "iteration"),
    [(0, 5.0), (1, 3.0), (3, 3.0)],  # one after the other; side by side, at the pace of the slower one
)
def test_a_virtual_clock_runs_unchanged_workers(lag: int, iteration: float) -> None:
    assert steady(motet.coarse(2, lag=lag), Given({"actors": 2.0, "learner": 3.0})) == pytest.approx(iteration)


def test_messages_take_time_on_their_way() -> None:
    """In lockstep a rollout goes there and a policy comes back; with a lag, messages travel while others compute."""
    costs = Given({"actors": 2.0, "learner": 3.0}, way=0.5)
    assert steady(motet.coarse(2, lag=0), costs) == pytest.approx(6.0)
    assert steady(motet.coarse(2, lag=2), costs) == pytest.approx(3.0)
    # Two iterations go round in 2 + 4 + 3 + 4 s, and whoever asks while a message is under way waits for it.
    far = Given({"actors": 2.0, "learner": 3.0}, way=4.0)
    graph = traced(ALGORITHMS["a2c"], motet.coarse(2, lag=1))
    ends = simulate(*workers_of(graph, motet.coarse(2, lag=1)), 14, far).finished("learner")
    assert (ends[12] - ends[4]) / 8 == pytest.approx(6.5)


def test_a_sender_waits_until_there_is_room() -> None:
    """With the latest policy, nothing but the rollouts that the learner has yet to take holds its actor back."""
    costs = Given({"actors": 1.0, "learner": 3.0})
    assert steady(motet.coarse(1, lag="latest"), costs, name="actors") == pytest.approx(3.0)


@pytest.mark.parametrize(("cores", "iteration"), [(1, 7.0), (2, 4.0), (3, 3.0)])
def test_who_shares_a_core_takes_turns(cores: int, iteration: float) -> None:
    """Two actors of 2 s and a learner of 3 s. On two cores all begin together at two thirds of their speed; the actors
    are done after 3 s, as far ahead as they may be, and the learner takes its last second alone."""
    costs = Given({"actors": 2.0, "learner": 3.0}, on="cores")
    graph = traced(ALGORITHMS["a2c"], motet.coarse(2, lag=3))
    found = simulate(*workers_of(graph, motet.coarse(2, lag=3)), 40, costs, {"cores": cores})
    ends = found.finished("learner")
    assert (ends[29] - ends[9]) / 20 == pytest.approx(iteration, rel=0.02)
    assert found.used["cores"] == pytest.approx(40 * 7.0, rel=0.05)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("dqn-prioritised", motet.fine(2)),
        ("dqn", motet.central(2)),
        ("dqn", motet.central(2, lag="latest")),
        ("dqn-prioritised", motet.pearl(2, prefetch=2)),
        ("dqn-prioritised", motet.anakin()),
    ],
)
def test_every_plan_comes_to_its_end_and_twice_to_the_same(name: str, plan: Plan) -> None:
    graph = traced(ALGORITHMS[name], plan)
    first, second = (simulate(*workers_of(graph, plan), 5, Given({}, way=0.1)) for _ in range(2))
    assert {len(found) for found in first.logs.values()} == {6}
    assert first == second


def test_it_is_said_for_whom_a_worker_waits() -> None:
    plan = motet.coarse(2)
    found = simulate(*workers_of(traced(ALGORITHMS["a2c"], plan), plan), 10, Given({"actors": 1.0, "learner": 4.0}))
    actor, learner = found.logs["actors[0]"][-1], found.logs["learner"][-1]
    assert actor.waited["learner"] == pytest.approx(9 * 4.0) and actor.busy["compute"] == pytest.approx(10.0)
    assert learner.waited["actors"] == pytest.approx(10.0) and learner.busy["compute"] == pytest.approx(40.0)


def test_a_channel_without_its_sender_stalls_and_says_so() -> None:
    plan = motet.coarse(2)
    workers, channels = workers_of(traced(ALGORITHMS["a2c"], plan), plan)
    with pytest.raises(Stalled, match="learner waits for"):
        simulate([each for each in workers if each.name != "actors[1]"], channels, 3, Given({}))


def test_it_stops_when_nothing_new_is_to_be_seen() -> None:
    plan = motet.coarse(2, lag=1)
    graph = traced(ALGORITHMS["a2c"], plan)
    found = simulate(*workers_of(graph, plan), 10_000, Given({}), settled=1e-6)
    assert len(found.finished("learner")) < 20


def test_cores_are_shared_evenly_and_locks_are_not() -> None:
    clock, ends = Clock(), dict[str, float]()
    resources = Resources(clock, {"cores": 2})
    for name, seconds, demand in (("a", 1.0, 1.0), ("b", 1.0, 1.0), ("wide", 2.0, 2.0)):
        resources.perform([Use(seconds, "cores", demand)], lambda name=name: ends.update({name: clock.now}))
    clock.run()
    assert ends == pytest.approx({"a": 2.0, "b": 2.0, "wide": 3.0})  # all at half speed, then the wide one alone
    locked = [Use(1.0, "cores", locks=("python",))]
    resources.perform(locked, lambda: ends.update(first=clock.now))
    resources.perform(locked, lambda: ends.update(second=clock.now))
    clock.run()
    assert (ends["first"], ends["second"]) == pytest.approx((4.0, 5.0))
    assert resources.busy()["python"] == pytest.approx(2.0)


def test_cores_that_are_all_busy_are_slower_and_what_was_measured_so_is_not_slowed_twice() -> None:
    clock, ends = Clock(), dict[str, float]()
    resources = Resources(clock, {"cores": 2}, crowding=0.8)
    resources.perform([Use(1.0, "cores")], lambda: ends.update(alone=clock.now))
    clock.run()
    for name in ("a", "b"):
        resources.perform([Use(1.0, "cores")], lambda name=name: ends.update({name: clock.now}))
    clock.run()
    resources.perform([Use(1.0, "cores", demand=2.0)], lambda: ends.update(wide=clock.now))
    clock.run()
    assert ends == pytest.approx({"alone": 1.0, "a": 2.25, "b": 2.25, "wide": 3.25})


def test_whoever_waited_wakes_up_late() -> None:
    """In lockstep, an actor waits for the policy and the learner for the rollout, once an iteration each."""
    costs = Given({"actors": 2.0, "learner": 3.0})
    assert steady(motet.coarse(1), costs, waking=0.25) == pytest.approx(5.5)
    assert steady(motet.coarse(1, lag=2), costs, waking=0.25) == pytest.approx(3.0)  # the learner finds what it wants


# Sleeping needs no core, so that a real run of programs that only sleep is what the clock must foretell.


@pytest.mark.parametrize("name", sleeping.CASES)
def test_with_programs_that_sleep_threads_take_as_long_as_foretold(name: str) -> None:
    """Within 3%, in the median iteration. What else the machine does can only make iterations longer, so that a run is
    repeated where they are; one whose iterations are shorter than foretold is wrong at once."""
    for _ in range(5):
        error = sleeping.error(sleeping.CASES[name], 0.1, 11)
        if error <= 0.03:
            break
    assert error == pytest.approx(0, abs=0.03)


def test_threads_and_the_clock_drive_the_same_workers() -> None:
    """Law 13: a driver is replaced, nothing else. What workers ask of both is the same, request by request."""
    plan = motet.coarse(2, lag=1)
    graph = traced(ALGORITHMS["a2c"], plan)
    asked: dict[str, dict[str, list[str]]] = {"threads": {}, "virtual": {}}

    def told(workers: Sequence[Worker], who: str) -> None:
        for worker in workers:
            real, log = worker.run, asked[who].setdefault(worker.name, [])

            def run(until: int, real: Any = real, log: list[str] = log) -> Any:
                requests, answer = real(until), None
                while True:
                    try:
                        request = requests.send(answer)
                    except StopIteration:
                        return
                    log.append(_words(request))
                    answer = yield request

            worker.run = run  # type: ignore[method-assign]

    assembly = sleeping.asleep(graph, plan, {"actors": 0.02, "learner": 0.03})
    told([each.worker for each in assembly.performers], "threads")
    threads.drive(assembly, 4)
    assembly.close()
    workers, channels = workers_of(graph, plan)
    told(workers, "virtual")
    simulate(workers, channels, 4, Given({}))
    assert asked["threads"] == asked["virtual"]
    assert type(workers[0]) is type(assembly.performers[0].worker)


def _words(request: Request) -> str:
    what = getattr(request, "wire", None) or getattr(getattr(request, "call", None), "label", "")
    when = getattr(request, "version", None) or getattr(request, "path", getattr(request, "iteration", ""))
    assert not isinstance(request, Stack)
    return f"{type(request).__name__} {what} {when}"
