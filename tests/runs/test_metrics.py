"""Rows of metrics come at iterations, not at times."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import motet
from motet.runs import metrics
from motet.runs.metrics import EPISODES, EVERY_ONE, Meter, Row, stretch

NAMES = ("episodes.count", "episodes.return", "episodes.length", "loss")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def metered(iterations: int, calls: list[int], clock: Clock | None = None, pause: float = 1.0) -> list[Row]:
    """The rows of a run whose iterations come in calls of so many, one call every `pause` seconds."""
    clock = clock or Clock()
    meter = Meter(10, 0, lambda row: None, lambda text: None, clock)
    meter.use(NAMES, [1] * len(NAMES))
    first = 0
    while first < iterations:
        count = min(calls[first % len(calls)], iterations - first)
        clock.now += pause
        numbers = np.arange(first, first + count, dtype=float)
        meter.rows(first, np.stack([np.ones(count), numbers, numbers, numbers], 1))
        first += count
    meter.finish()
    return meter.history


def without_time(rows: list[Row]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if "second" not in name} for row in rows]


def test_rows_do_not_depend_on_when_iterations_come() -> None:
    one_by_one = metered(5_000, [1], pause=0.01)
    assert without_time(metered(5_000, [256, 7, 100], pause=3.0)) == without_time(one_by_one)


def test_each_of_the_first_iterations_has_a_row_and_later_ones_share() -> None:
    ends = [row["iteration"] for row in metered(4 * EVERY_ONE, [64])]
    assert ends[:EVERY_ONE] == list(range(1, EVERY_ONE + 1))
    assert ends[EVERY_ONE:] == [
        *range(EVERY_ONE + 2, 2 * EVERY_ONE + 1, 2),
        *range(2 * EVERY_ONE + 4, 4 * EVERY_ONE + 1, 4),
    ]
    assert stretch(10**6) - 10**6 <= 1024


def test_a_row_is_the_mean_of_its_iterations_and_the_last_one_is_never_missing() -> None:
    rows = metered(EVERY_ONE + 5, [50])
    assert [row["iteration"] for row in rows[-3:]] == [EVERY_ONE + 2, EVERY_ONE + 4, EVERY_ONE + 5]
    assert [row["loss"] for row in rows[-3:]] == [EVERY_ONE + 0.5, EVERY_ONE + 2.5, EVERY_ONE + 4]
    assert rows[-2]["episodes"] == 2


def test_iterations_of_one_call_share_its_time_and_compiling_is_no_speed() -> None:
    rows = metered(9, [1, 8], pause=4.0)
    assert [row["seconds"] for row in rows] == [4.0, *(4.0 + 0.5 * part for part in range(1, 9))]
    assert [row["steps_per_second"] for row in rows] == [None, *[20] * 8]


def test_two_seeds_share_their_x_axis_and_a_short_run_has_a_curve() -> None:
    def rows(seed: int) -> list[dict[str, Any]]:
        algorithm = motet.A2C(num_envs=4, num_steps=8, hidden=(4,))
        return motet.train(algorithm, "CartPole-v1", motet.anakin(), total_timesteps=640, seed=seed).history

    runs = [rows(seed) for seed in (0, 1)]
    steps = [[row["steps"] for row in rows] for rows in runs]
    assert steps[0] == steps[1] == list(range(32, 641, 32))


@pytest.mark.parametrize("name", ["iteration", "steps", "seconds", "steps_per_second", "episodes", "return", "length"])
def test_every_column_is_documented(name: str) -> None:
    from tests.test_docs import ROOT

    assert f"| `{name}` |" in (ROOT / "docs" / "metrics.md").read_text()


def test_the_window_of_returns_is_what_the_documents_say() -> None:
    assert metrics.WINDOW == 100


def test_rows_do_not_depend_on_how_many_iterations_come_at_once_nor_on_an_interruption() -> None:
    """Programs report in single precision: what is added up of it must not be rounded by who came with whom."""
    told = np.random.default_rng(0).normal(size=(3_000, 5)).astype(np.float32)
    told[:, 0] = np.arange(3_000) % 3 == 0

    def made(pieces: list[int], stop: int | None = None) -> list[Any]:
        meter = fresh()
        for first, last in itertools.pairwise([0, *pieces, 3_000]):
            if first == stop:
                before, meter = meter, fresh()
                iteration, state = before.state()
                meter.load(iteration, json.loads(json.dumps(state)), before.history)
            meter.rows(first, told[first:last])
        return meter.history

    def fresh() -> Meter:
        meter = Meter(1, 0, lambda row: None, lambda text: None, clock=lambda: 0.0)
        meter.use([*EPISODES, "loss", "entropy"], [1] * 5)
        return meter

    whole = made([])
    assert len(whole) == 1024 + 512 + 238
    assert made(list(range(1, 3_000))) == whole
    assert made([7, 1_025, 1_030, 2_049, 2_500], stop=1_025) == whole
    assert made([1_500, 2_051], stop=2_051) == whole
