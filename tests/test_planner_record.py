"""What is said of the planner is what was measured of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import planner, planner_record
from benchmarks.planner_grid import HELD_OUT, TASKS, Task
from benchmarks.planner_record import Case, block, in_order, kept, read, record, tau, with_block

BEFORE = {"plan": "anakin()", "predicted": 110.0, "measured": 100.0, "chosen": True, "of_best": 1.0, "profiled": 13.0}
"""A case as older records have it."""


def of(task: str, *pairs: tuple[float, float]) -> list[Case]:
    """Cases of which so much was predicted and measured, the first one chosen."""
    return [Case(task, f"plan {n}", *pair, n == 0, of_best=1.0, profiled=13.0) for n, pair in enumerate(pairs)]


def test_the_record_and_the_documents_have_what_was_measured() -> None:
    """`python -m benchmarks.planner_record` writes both anew."""
    found, page = in_order(kept()), planner_record.PAGE.read_text()
    assert planner_record.RECORD.read_text() == record(found)
    assert page == with_block(page, block(found))
    for task in {case.task for case in found}:
        assert f"| {task} " in page


def test_a_page_without_its_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block between the lines"):
        with_block("# The planner\n", "72 plans")


def test_records_from_before_are_shown() -> None:
    """Without what the first seconds foretold; and which tasks are held out, the grid says."""
    text = json.dumps({task.name: [{**BEFORE, "task": task.name, "held_out": True}] for task in TASKS})
    found = in_order(read(text))
    assert [case.task for case in found] == [task.name for task in TASKS]
    shown = record(found)
    assert f"{len(TASKS)} cases, {len(HELD_OUT)} of them held out, on 2 cores" in shown
    assert "first 15 s" not in shown and "first seconds" not in block(found)
    assert all((f"{task.name} (held out)" in shown) == task.held_out for task in TASKS)


def test_what_the_first_seconds_foretell_stands_beside() -> None:
    found = [replace(case, short=short) for case, short in zip(of("t", (100, 100), (90, 100)), (150, 80), strict=True)]
    shown = record(found)
    assert "Error of predicted steps/s: median 5%" in shown
    assert "Predictions of the first 15 s: median 35%, 90th percentile 47%, worst 50%." in shown
    assert "| t | plan 1 | 90 | 80 | 100 | -10% |" in shown
    assert "first seconds alone foretell: median 35%" in block(found)


def test_enough_of_the_grid_is_held_out() -> None:
    plans = {task.name: len(task.plans) for task in TASKS}
    assert sum(plans.values()) >= 30
    assert sum(plans[task] for task in HELD_OUT) >= 8
    assert sum(case.held_out for case in in_order(kept())) >= 8
    assert not HELD_OUT & {"impala, CartPole", "td3, Pendulum"}  # their errors were published before


def test_tau_counts_pairs_in_the_other_order() -> None:
    assert tau(of("t", (1, 10), (2, 20), (3, 30))) == 1
    assert tau(of("t", (3, 10), (2, 20), (1, 30))) == -1
    assert tau(of("t", (2, 10), (1, 20), (3, 30))) == pytest.approx(1 / 3)


def test_a_task_that_fails_leaves_what_is_known_of_it_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = (task.name for task in TASKS[:3])
    for name in ("KEPT", "RECORD", "PAGE"):
        monkeypatch.setattr(planner_record, name, tmp_path / name)
    planner_record.PAGE.write_text(f"before\n{planner_record.BEGIN}\n{planner_record.END}\nafter\n")
    planner_record.keep({first: of(first, (1, 1)), second: of(second, (2, 2))})

    def cases(task: Task) -> Sequence[Case]:
        if task.name == second:
            raise RuntimeError("out of memory")
        return of(task.name, (5, 5))

    monkeypatch.setattr(planner, "cases", cases)
    assert planner.main([first, second, third]) == 1
    assert {name: found[0].measured for name, found in kept().items()} == {first: 5, second: 2, third: 5}
    said = capsys.readouterr().err
    assert "out of memory" in said and f"{second} failed" in said
    page = planner_record.PAGE.read_text()
    assert page == with_block(page, block(in_order(kept())))
    assert page.startswith("before") and page.endswith("after\n") and f"| {third} |" in page
    assert planner.main(["no such task"]) == 2


def test_claims_are_named_by_patterns_and_those_of_the_grid_share_a_process() -> None:
    of_the_grid = ["planner_error", "planner_error_90", "planner_order", "planner_regret", "planner_profiling"]
    others = ["planner_default", "planner_choosing", "planner_simulating", "planner_sleeping"]
    assert bench.named(["planner_*", "planner_error"]) == of_the_grid + others
    assert bench.apart(bench.named(["planner_*"])) == [*([name] for name in others), of_the_grid]
    assert bench.main(["planner_*", "plannr_*"]) == 2
