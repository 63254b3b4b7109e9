"""Whoever follows a run is told everything, in order, and may end it by raising."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import motet

TINY = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
PLANS = {"anakin": motet.anakin(), "coarse": motet.coarse(2, lag=0)}


class Notes(motet.Callback):
    """Writes down what it is told; raises where it is asked to."""

    def __init__(self, raises: str = "", notes: list[Any] | None = None, name: str = "") -> None:
        self.raises, self.notes, self.name = raises, [] if notes is None else notes, name

    def _note(self, what: str, value: Any) -> None:
        self.notes.append((self.name, what, value))
        if self.raises == what:
            raise RuntimeError(f"no more {what}s")

    def begin(self, run: Any) -> None:
        self._note("begin", run)

    def row(self, row: Any) -> None:
        self._note("row", row["iteration"])

    def end(self, outcome: Any) -> None:
        self._note("end", outcome)


def train(*callbacks: motet.Callback, plan: str = "anakin", **more: Any) -> motet.Result:
    return motet.train(TINY, "CartPole-v1", PLANS[plan], total_timesteps=80, callbacks=callbacks, **more)


def test_a_callback_hears_of_the_beginning_each_row_and_the_result() -> None:
    notes = Notes()
    result = train(notes)
    (_, begin, run), *rows, (_, end, outcome) = notes.notes
    assert (begin, end) == ("begin", "end") and outcome is result
    assert run.total_steps == result.steps == 80 and run.plan == result.plan and run.names.algorithm == "a2c"
    assert [number for _, _, number in rows] == [row["iteration"] for row in result.history] == [1, 2, 3, 4]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("method", ["begin", "row", "end"])
def test_a_callback_that_raises_ends_the_run_and_is_named(method: str, plan: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"no more {method}s") as caught:
        train(Notes(method), plan=plan, run_dir=tmp_path / "run")
    said = "".join(traceback.format_exception(caught.value))
    assert f"(raised by the callback Notes, in {method})" in said
    assert 'raise RuntimeError(f"no more {what}s")' in said, "its own traceback"
    assert not (tmp_path / "run" / "running").exists()


def test_all_are_told_of_the_end_the_last_first_and_the_first_error_is_raised() -> None:
    notes: list[Any] = []
    with pytest.raises(RuntimeError, match="no more rows") as caught:
        train(Notes("", notes, "one"), Notes("end", notes, "two"), Notes("row", notes, "three"))
    ends = [(name, value) for name, what, value in notes if what == "end"]
    assert ends == [(name, caught.value) for name in ("three", "two", "one")]
    assert any("no more ends" in note for note in caught.value.__notes__)


def test_whoever_has_not_begun_is_not_told_of_the_end() -> None:
    notes: list[Any] = []
    with pytest.raises(RuntimeError, match="no more begins"):
        train(Notes("begin", notes, "one"), Notes("", notes, "two"))
    assert [(name, what) for name, what, _ in notes] == [("one", "begin"), ("one", "end")]


@pytest.mark.parametrize("wrong", [[Notes], [print], Notes()])
def test_what_is_no_callback_is_refused(wrong: Any) -> None:
    with pytest.raises(motet.BadOption, match=r"callbacks must be .*, got"):
        motet.train(TINY, "CartPole-v1", PLANS["anakin"], total_timesteps=80, callbacks=wrong)
