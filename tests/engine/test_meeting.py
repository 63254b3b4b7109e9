"""Workers in different iterations are seen at one that nobody has passed, without waiting for each other."""

from __future__ import annotations

import threading
from typing import Any

import jax
import pytest

import motet
from motet.engine.assemble import Settings
from motet.engine.meeting import Meeting
from motet.engine.run import Reporter, finish, prepare
from tests.laws.cases import ALGORITHMS, traced


def test_all_are_seen_where_the_farthest_stands_or_beyond() -> None:
    meeting = Meeting(["a", "b"])
    meeting.arrive("a", 3)
    assert meeting.soonest("a") == 3, "b has yet to come there"
    meeting.arrive("b", 3)
    assert meeting.soonest("b") == 4, "a may be gone"
    meeting.arrive("b", 5)
    assert meeting.soonest("a") == 6


def test_one_alone_is_seen_at_once() -> None:
    meeting = Meeting(["a"])
    meeting.arrive("a", 7)
    assert meeting.soonest("a") == 7


class Silent:
    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: Any) -> None: ...


class Ender:
    """Ends the run as soon as any worker has done so many iterations."""

    def __init__(self, wanted: int):
        self.wanted, self.seen, self.lock = wanted, {}, threading.Lock()  # type: ignore[var-annotated]
        self.reporter: Reporter | None = None
        self.at: int | None = None

    def limit(self, iteration: int) -> int | None:
        return self.wanted - iteration if iteration < self.wanted else None

    def visit(self, performer: Any, done: Any) -> None:
        assert self.reporter is not None
        with self.reporter.meeting.lock:
            self.seen.setdefault(performer.worker.name, []).append(done.iteration)
            if self.at is None and done.iteration >= self.wanted:
                self.at = self.reporter.meeting.soonest(performer.worker.name)
                self.reporter.end_at(self.at)


@pytest.mark.parametrize("plan", [motet.anakin(), motet.coarse(2, lag=1), motet.fine(2)], ids=lambda plan: plan.name)
def test_a_run_ends_early_where_all_workers_meet(plan: motet.Plan) -> None:
    graph, ender = traced(ALGORITHMS["a2c"], plan, iterations=30), Ender(4)
    ender.reporter = reporter = Reporter(graph, plan, Silent(), visitors=[ender])
    assembly = prepare(graph, plan, {"cpu": jax.devices()}, reporter, Settings())
    outcome = finish(assembly, reporter, 30)
    assert ender.at is not None and 4 <= ender.at <= 8
    assert outcome.iterations == ender.at
    assert {each.worker.iteration for each in assembly.performers} == {ender.at}
    assert all(numbers[-1] == ender.at for numbers in ender.seen.values()), ender.seen
