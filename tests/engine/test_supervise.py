"""The first error stops everyone, is raised with its own traceback, and leaves no thread behind."""

from __future__ import annotations

import threading
import time
import traceback

import jax
import pytest

import motet
from motet.engine.assemble import Settings, assemble
from motet.engine.serial import drive
from tests.laws.cases import ALGORITHMS, run, traced


def motet_threads() -> list[str]:
    """Those of a run's workers; evaluations that earlier tests left have others."""
    workers = ("motet actors", "motet learner")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(workers)]


@pytest.mark.parametrize("victim", ["actors[1]", "learner"])
@pytest.mark.parametrize("mode", ["threads", "serial"])
def test_the_first_error_is_raised_from_train_with_its_traceback(victim: str, mode) -> None:
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    calls = []

    def sabotage(name: str) -> None:
        calls.append(name)
        if name == victim and calls.count(name) == 2:
            raise RuntimeError("the violin broke")

    with pytest.raises(RuntimeError, match="the violin broke") as caught:
        run(graph, plan, delay=sabotage, mode=mode)
    text = "".join(traceback.format_exception(caught.value))
    assert "in sabotage" in text
    if mode == "threads":
        assert f"raised in {victim}" in text
    assert not motet_threads()


def test_a_wait_that_is_too_long_names_who_waits_for_whom() -> None:
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    run(graph, plan)  # so that compilation is quick below

    def sleep(name: str) -> None:
        if name == "learner":
            for _ in range(600):
                time.sleep(0.1)
                if not any("actors" in each for each in motet_threads()):
                    return

    with pytest.raises(motet.Stalled) as caught:
        run(graph, plan, delay=sleep, timeout=8)
    message = str(caught.value)
    assert "has waited 8 s for" in message
    assert "actors[" in message
    assert "learner is" in message
    assert "raise `timeout`" in message
    assert not motet_threads()


def test_a_stall_in_the_serial_engine_is_an_error_and_not_a_hang() -> None:
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    stalled = assemble(graph, plan, {"cpu": jax.devices()}, Settings())
    for channel in stalled.channels.values():
        channel.capacity = 0  # nobody may ever send
    with pytest.raises(motet.Stalled, match=r"Nobody can go on: .*waits for room in"):
        drive(stalled, 2)
