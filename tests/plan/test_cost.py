"""Figures of a book: what was measured, what follows from it, and which word each has."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import motet
from motet.plan import catalogue
from motet.plan.cost import UNKNOWN_STEP, Book, Fit, Profile
from motet.plan.machine import Machine
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from tests.laws.cases import ALGORITHMS, traced

PLAN = motet.coarse(2)


def book_of(profile: Profile, cores: int = 4, plan: Plan = PLAN) -> Book:
    machine = Machine("processors", cores, 1e11, (catalogue.processor("core", 1e11),))
    return Book(traced(ALGORITHMS["a2c"], plan), machine, profile)


@pytest.mark.parametrize(
    ("size", "seconds", "word"),
    [
        (32.0, 2.0, "measured"),
        (48.0, 2.5, "measured"),
        (64.0, 3.0, "measured"),
        (16.0, 1.5, "modelled"),
        (65.0, 3.0 + 1 / 32, "modelled"),
        (1024.0, 33.0, "modelled"),
    ],
)
def test_beyond_what_was_measured_it_is_a_model(size: float, seconds: float, word: str) -> None:
    """The seconds are those of one and the same line."""
    found = Fit(((32.0, 2.0), (64.0, 3.0)), 1.5).at(size)
    assert found.seconds == pytest.approx(seconds) and found.word == word and found.demand == 1.5
    assert found.beyond == (word == "modelled")


def test_messages_and_stacks_larger_than_any_that_was_measured_are_modelled() -> None:
    points = ((100.0, 1.0), (200.0, 2.0))
    book = book_of(Profile(send=points, receive=points, stack=((100.0, 1.0),)))
    for what in ("send", "receive"):
        found = [book.moving(what, size) for size in (50, 100, 150, 200, 300)]
        assert [each.seconds for each in found] == pytest.approx([0.5, 1.0, 1.5, 2.0, 3.0])
        assert [each.measured for each in found] == [False, True, True, True, False]
    assert book.moving("stack", 100).measured and not book.moving("stack", 101).measured
    wire = next(wire for wire, _ in wires(project(book.graph, PLAN)["actors"].body) if wire.source == "actors")
    assert [book.message("send", wire, 1, size).measured for size in (150.0, 300.0)] == [True, False]


def test_as_many_processes_as_were_not_tried_share_the_steps_and_are_reached_as_others_are() -> None:
    """A step of 8 takes 1 s in a thread and 0.7 s in two processes, of which 0.5 s is their share: 0.2 s to reach
    them. On one core two processes are no faster: what they take more than a thread is what it takes to reach them."""

    def step(workers: int, cores: int, seconds: Mapping[str, float], environments: float = 8.0) -> tuple[float, ...]:
        fits = {name: Fit(((8.0, each),)) for name, each in seconds.items()}
        found = book_of(Profile(environments=fits), cores).step(environments, workers)
        return found.seconds, found.demand, found.measured

    tried = {"0": 1.0, "2": 0.7}
    assert step(0, 4, tried) == (1.0, 1.0, True) and step(2, 4, tried) == (0.7, 1.0, True)
    assert step(4, 4, tried) == pytest.approx((1.0 / 4 + 0.2, 4.0, False))
    assert step(3, 4, tried) == pytest.approx((1.0 / 3 + 0.2, 3.0, False))
    assert step(4, 1, {"0": 1.0, "2": 1.3}) == pytest.approx((1.0 / 4 + 0.3, 4.0, False))
    assert step(4, 1, tried) == pytest.approx((1.0 / 4, 4.0, False))  # to reach them takes no less than nothing
    assert step(4, 4, {"0": 1.0}) == pytest.approx((1.0 / 4 + 1e-4, 4.0, False))
    assert step(4, 4, {}) == pytest.approx((8 * UNKNOWN_STEP / 4 + 1e-4, 4.0, False))
    assert step(4, 4, tried, environments=4.0)[0] == pytest.approx(0.6 / 4 + (0.42 - 0.6 / 2))


def test_a_processs_share_is_that_of_the_cores_that_there_are() -> None:
    """Eight processes on two cores: each core has half of the steps."""
    fits = {"0": Fit(((8.0, 1.0),)), "8": Fit(((8.0, 0.9),))}
    assert book_of(Profile(environments=fits), 2).step(8.0, 4).seconds == pytest.approx(1.0 / 4 + 0.9 - 1.0 / 2)
