"""What requests and messages of a plan use on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import motet
from motet.engine.charges import TURN, Charges
from motet.engine.clock import Use
from motet.engine.estimate import estimate, floor
from motet.engine.rehearse import schedules_of, workers_of
from motet.engine.requests import Consult, Iterate
from motet.flow.graph import WHOLE, Graph
from motet.flow.trace import trace
from motet.plan import catalogue
from motet.plan.board import board_at, crossing, on_board
from motet.plan.cost import HANDLING, Book, Fit, Profile
from motet.plan.keys import call_key
from motet.plan.machine import Connection, Machine
from motet.plan.plan import Plan
from motet.plan.project import Rounds
from motet.plan.schedule import Ask, Keep
from motet.plan.spread import spread
from tests.laws.cases import ALGORITHMS, traced

WORKSTATION = catalogue.find("pearl-workstation")
ON_BOARD = motet.pearl(lag=0, replay="opencl:0")
HOSTED = motet.A2C(num_envs=8, num_steps=4, hidden=(8,))


def processors(cores: int) -> Machine:
    return Machine("processors", cores, 1e11, (catalogue.processor("core", 1e11),))


def charged(graph: Graph, plan: Plan, book: Book, kind: type) -> dict[str, Sequence[Use]]:
    """What each request of a kind that a plan asks for between calls uses, by its node."""
    seats = spread(plan, book.machine)
    schedules = schedules_of(graph, plan, {name: found[0].kind for name, found in seats.items()})
    workers, channels = workers_of(graph, plan, schedules)
    charges = Charges(graph, plan, book, seats, {0: 1}, channels)
    return {
        each.node.name: charges.request(worker, Consult(each, ()))
        for worker in reversed(workers)
        for each in flat(worker.schedule.body)
        if isinstance(each, kind)
    }


def flat(operations: Any) -> list[Any]:
    found = []
    for each in operations:
        found += flat(each.body) if isinstance(each, Rounds) else [each]
    return found


# A replay on a board.


def prioritised() -> Graph:
    return traced(ALGORITHMS["dqn-prioritised"], ON_BOARD)


def test_a_replay_on_a_board_uses_the_board_and_python_only_to_hand_over() -> None:
    graph, way = prioritised(), WORKSTATION.connections["host"]
    found, board = charged(graph, ON_BOARD, Book(graph, WORKSTATION), Keep), board_at(WORKSTATION, "opencl:0")
    assert board is not None and found.keys() == {"remember", "sample", "reprioritize"}
    for name, uses in found.items():
        node = next(each for each in graph.nodes() if each.name == name)
        there, back = crossing(graph, node)
        assert bool(there) != bool(back)
        asking = Use(HANDLING, ("cores", 0), 1.0, (("python", 0),), name)
        computing = Use(on_board(graph, node, board[0]), ("device", 0, "fpga", 0), label=name)
        crosses = [Use((there + back) / way.bandwidth, ("host", 0), label=name), Use(way.latency, label=name)]
        assert list(uses) == ([asking, *crosses, computing] if there else [asking, computing, *crosses])


def test_boards_are_told_apart_by_their_number() -> None:
    fpga = WORKSTATION.devices[-1]
    machine = replace(WORKSTATION, devices=(*WORKSTATION.devices[:-1], replace(fpga, count=2)))
    graph = prioritised()
    found = charged(graph, motet.pearl(lag=0, replay="opencl:1"), Book(graph, machine), Keep)
    assert {use.on for use in found["sample"] if use.on and use.on[0] == "device"} == {("device", 0, "fpga", 1)}  # type: ignore[index]


@pytest.mark.parametrize(
    ("machine", "place"), [(WORKSTATION, "host"), (WORKSTATION, "opencl:1"), (processors(4), "opencl:0")]
)
def test_a_replay_on_the_hosts_processor_computes_in_the_asking_thread(machine: Machine, place: str) -> None:
    graph, plan = prioritised(), motet.pearl(lag=0, replay=place)
    book = Book(graph, machine)
    for name, uses in charged(graph, plan, book, Keep).items():
        node = next(each for each in graph.nodes() if each.name == name)
        seconds = book.remembering(node, place).seconds
        assert list(uses) == [Use(seconds + HANDLING, ("cores", 0), 1.0, (("python", 0),), name)]


def test_what_was_timed_on_a_board_has_crossed_already() -> None:
    graph = prioritised()
    known = Profile(replay={"opencl:0 sample": Fit(((8.0, 7.0),))})
    uses = charged(graph, ON_BOARD, Book(graph, WORKSTATION, known), Keep)["sample"]
    assert list(uses)[1:] == [Use(7.0, ("device", 0, "fpga", 0), label="sample")]


def test_what_a_board_draws_while_it_computes_counts() -> None:
    """An iteration samples three times: the board is busy for that share of it, and draws 15 W more meanwhile."""
    graph = prioritised()
    seconds = {"opencl:0 sample": 0.5, "opencl:0 remember": 0.25, "opencl:0 reprioritize": 0.125}
    known = Profile(replay={key: Fit(((8.0, each),)) for key, each in seconds.items()})
    busy = (3 * 0.5 + 0.25 + 3 * 0.125) / estimate(graph, ON_BOARD, Book(graph, WORKSTATION, known)).iteration_seconds
    assert busy > 0.95
    hungry = replace(WORKSTATION.devices[-1], watts=1015.0)
    machine = replace(WORKSTATION, devices=(*WORKSTATION.devices[:-1], hungry))
    usual, more = (estimate(graph, ON_BOARD, Book(graph, each, known)) for each in (WORKSTATION, machine))
    assert usual.steps_per_second == more.steps_per_second and usual.used["device"] == pytest.approx(busy, rel=0.05)
    assert more.watts - usual.watts == pytest.approx((1015 - 30) * usual.used["device"])
    assert usual.used["python"] < 0.01  # as it would not be if the asking thread computed
    assert usual.used["cores"] < 0.01


def test_a_bound_on_a_plan_with_a_board_is_below_what_comes() -> None:
    graph = prioritised()
    for place in ("opencl:0", "host"):
        plan, book = motet.pearl(lag=0, replay=place), Book(graph, WORKSTATION)
        assert 0 < floor(graph, plan, book) <= estimate(graph, plan, book).iteration_seconds * 1.0001


# Steps of environments in a worker's own thread.


def hosted(plan: Plan) -> Graph:
    return trace(HOSTED, motet.make("gymnasium/CartPole-v1"), iterations=20, cuts=tuple({WHOLE, *plan.cuts()}))


@pytest.mark.parametrize(("share", "locked"), [(0.25, 0.25), (0.9, 0.9), (0.95, 1.0), (1.0, 1.0)])
def test_environments_in_a_thread_have_the_lock_for_their_share_of_each_turn(share: float, locked: float) -> None:
    """A step of 5 ms is in three turns, in each of which others get the lock for what is left."""
    plan = motet.coarse(2)
    graph, seconds = hosted(plan), 2.5 * TURN
    profile = Profile(environments={"0": Fit(((4.0, seconds),))}, locked={"0": share}, handling=1e-6, asking=1e-5)
    (uses,) = charged(graph, plan, Book(graph, processors(2), profile), Ask).values()
    asking, *steps = uses
    assert asking == Use(pytest.approx(1.1e-5), ("cores", 0), 1.0, (("python", 0),), "ask")
    held = Use(locked * seconds / 3, ("cores", 0), 1.0, (("python", 0),), "environments")
    free = Use((1 - locked) * seconds / 3, ("cores", 0), 1.0, (), "environments")
    assert steps == ([held] if locked == 1.0 else [held, free]) * 3
    assert sum(use.seconds for use in steps) == pytest.approx(seconds)


def test_two_threads_step_side_by_side_but_for_the_lock() -> None:
    """Each takes 1 s of which half is with the lock: together they take little more than one where the lock is shared
    out in turns, and 2 s where it is held all the time."""
    plan = motet.coarse(2)
    graph = hosted(plan)

    def seconds(share: float) -> float:
        profile = Profile(
            environments={"0": Fit(((4.0, 1.0),))}, locked={"0": share}, handling=1e-9, asking=1e-9, waking=1e-9,
            reporting={"learner": 1e-9, "others": 1e-9},
        )  # fmt: skip
        return estimate(graph, plan, Book(graph, processors(4), profile)).iteration_seconds / HOSTED.num_steps

    assert seconds(0.5) == pytest.approx(1.0, rel=0.02)
    assert seconds(1.0) == pytest.approx(2.0, rel=0.02)
    assert seconds(0.75) == pytest.approx(1.5, rel=0.02)


# What is said to be modelled.

CONSTANTS = {
    "asking environments": {"asking": 1e-5},
    "calling programs": {"calling": ((4.0, 1e-5), (48.0, 2e-5))},
    "waking threads": {"waking": 1e-5},
    "cores that are all busy": {"crowding": 0.9},
    "what Python does between requests": {"handling": 1e-5},
    "reports": {"reporting": {"learner": 1e-5, "others": 1e-5}},
}


@pytest.mark.parametrize("what", CONSTANTS)
def test_constants_that_nobody_measured_are_named_where_they_are_used(what: str) -> None:
    plan = motet.coarse(2)
    graph = hosted(plan)
    known: dict[str, Any] = {}
    for each in CONSTANTS.values():
        known |= each
    everything = estimate(graph, plan, Book(graph, processors(2), Profile(**known)))
    assert not CONSTANTS.keys() & set(everything.modelled)
    missing = {name: each for name, each in known.items() if name not in CONSTANTS[what]}
    found = estimate(graph, plan, Book(graph, processors(2), Profile(**missing)))
    assert set(found.modelled) - set(everything.modelled) == {what}


def test_constants_that_are_not_used_are_not_named() -> None:
    """Who is alone waits for nobody and hands nothing over; on one core there is no other one to share with."""
    plan = motet.multi_learner(1)
    graph = hosted(plan)
    assert not CONSTANTS.keys() & set(estimate(graph, plan, Book(graph, processors(2))).modelled)
    crowd = motet.coarse(2)
    found = estimate(hosted(crowd), crowd, Book(hosted(crowd), processors(1))).modelled
    assert CONSTANTS.keys() - set(found) == {"cores that are all busy"}


def test_a_call_larger_than_those_that_were_measured_is_modelled_and_keeps_as_many_cores_busy() -> None:
    plan = motet.multi_learner(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    worker = workers_of(graph, plan, whole=True)[0][0]
    call = worker.schedule.whole
    assert call is not None

    def charge(*sizes: float) -> tuple[Use, set[str]]:
        known = Profile({call_key("cpu", call, 2, True): Fit(tuple((size, size) for size in sizes), 1.5)})
        seats = spread(plan, replace(processors(4), devices=(catalogue.processor("core", 1e11, 2),)))
        machine = replace(processors(4), devices=(catalogue.processor("core", 1e11, 2),))
        charges = Charges(graph, plan, Book(graph, machine, known), seats, {0: 1}, [])
        return next(iter(charges.request(worker, Iterate(call, 0, 1)))), charges.modelled

    inside, noted = charge(2.0, 8.0)
    assert (inside.seconds, inside.demand) == (pytest.approx(4.0), 1.5) and not noted
    beyond, noted = charge(1.0, 2.0)
    assert (beyond.seconds, beyond.demand) == (pytest.approx(4.0), 1.5) and len(noted) == 1
    alone, noted = charge(2.0)  # of one size nobody knows how many cores another one keeps busy
    assert alone.demand == 2.0 and len(noted) == 1


# What keeps everybody from going faster.


def test_a_full_connection_of_devices_is_the_bottleneck() -> None:
    """Actors on the processor and a learner on a card, or both on cards, far apart from each other."""
    plan = motet.coarse(1, lag=1)
    graph = traced(ALGORITHMS["a2c"], plan)
    slow = Connection(0.0, 1e3)
    moved = replace(plan, fragments={**plan.fragments, "actors": replace(plan.fragments["actors"], place="cpu:0")})
    node = catalogue.a100_node()
    for name, cut, said in (
        ("host", moved, "the connection of a host and its devices"),
        ("devices", plan, "the connection between devices"),
    ):
        found = estimate(graph, cut, Book(graph, replace(node, connections={**node.connections, name: slow})))
        assert found.used[name] > 0.97 and found.bottleneck == said
        assert "connection" not in estimate(graph, cut, Book(graph, node)).bottleneck
