"""A run ends early at an iteration that follows from its numbers, never from the clock, and everybody stops there."""

from __future__ import annotations

import random
import time
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet import cli
from motet.engine.run import Reporter
from motet.runs.metrics import Row
from motet.stopping import Stopper, Threshold

PPO = motet.PPO(num_envs=4, num_steps=8, hidden=(8,), anneal=False)
PLANS = {"anakin": motet.anakin(), "coarse": motet.coarse(2), "coarse, lag 2": motet.coarse(2, lag=2)}


def train(plan: str = "anakin", total_timesteps: int = 640, **more: Any) -> motet.Result:
    return motet.train(PPO, "CartPole-v1", PLANS[plan], total_timesteps=total_timesteps, **more)


@pytest.mark.parametrize(
    ("text", "row", "met"),
    [
        ("eval/return >= 475", {"eval/return": 475.0}, True),
        ("eval/return>=475", {"eval/return": 474.9}, False),
        (" return > -1e2 ", {"return": -99.0}, True),
        ("loss < 0.5", {"loss": 0.5}, False),
        ("loss <= 0.5", {"loss": 0.5}, True),
        ("return > 3", {"return": None}, False),
        ("return > 3", {}, False),
    ],
)
def test_a_comparison_is_what_it_says(text: str, row: Row, met: bool) -> None:
    assert Threshold.read(text)(row) is met


@pytest.mark.parametrize("text", ["", "return", "return >=", ">= 3", "return = 3", "return >= high", "return > nan",
                                  "__import__('os') > 3", "return >= 3 or True", "3 <= return"])  # fmt: skip
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(motet.BadOption, match="stop_when must be a column"):
        train(stop_when=text)


def test_columns_that_no_row_has_are_refused_before_anything_runs(tmp_path: Any) -> None:
    with pytest.raises(motet.UnknownName, match="Did you mean 'return'"):
        train(stop_when="retrun >= 3", run_dir=tmp_path / "run")
    with pytest.raises(motet.BadOption, match="nothing is evaluated during training"):
        train(stop_when="eval/return >= 3", run_dir=tmp_path / "run")
    with pytest.raises(motet.BadOption, match="a function of a row, got 475"):
        train(stop_when=475, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_stops_where_its_condition_is_met() -> None:
    result = train(stop_when="steps >= 200")
    assert result.iterations == 7 and result.steps == result.history[-1]["steps"] == 224
    assert result.stopped == "steps >= 200 held after 224 steps"
    whole = train(total_timesteps=224)
    jax.tree.map(np.testing.assert_array_equal, result.state, whole.state)
    assert whole.stopped == ""


def test_a_condition_that_is_never_met_changes_nothing() -> None:
    result = train(stop_when="return > 1e9")
    assert result.iterations == 20 and result.stopped == ""


@pytest.mark.parametrize("plan", ["coarse", "coarse, lag 2"])
def test_all_parts_stop_at_one_iteration_whatever_the_delays(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reporter.__init__

    def delayed(seed: int) -> Any:
        order = random.Random(seed)

        def slow(reporter: Any, *args: Any, **more: Any) -> None:
            made(reporter, *args, **more)
            reporter.delay = lambda worker: time.sleep(order.random() * 0.02)

        return slow

    ends = []
    for seed in range(3):
        monkeypatch.setattr(Reporter, "__init__", delayed(seed))
        ends.append(train(plan, stop_when="steps >= 200"))
    assert len({result.steps for result in ends}) == 1
    assert 224 < ends[0].steps < 640
    for result in ends[1:]:
        jax.tree.map(np.testing.assert_array_equal, result.state, ends[0].state)


@pytest.mark.parametrize("plan", PLANS)
def test_an_evaluation_ends_a_run_where_it_was_taken(plan: str) -> None:
    """Beside the parts' possible lead, which is the plan's."""
    seen: list[Row] = []

    def enough(row: Row) -> bool:
        seen.append(row)
        return row["steps"] == 192 and "eval/return" in row

    result = train(plan, stop_when=enough, eval_steps=96, eval_episodes=2)
    assert [row["steps"] for row in result.evaluations[:2]] == [96, 192]
    lead = {"anakin": 0, "coarse": 2, "coarse, lag 2": 4}[plan]
    assert result.iterations == 6 + lead
    assert result.evaluations[-1]["steps"] == result.steps, "what came out is evaluated too"
    assert result.stopped == "the condition of stop_when held after 192 steps"
    assert any("return" in row and "eval/return" in row for row in seen)


def test_calls_of_many_iterations_end_where_a_run_may_stop() -> None:
    """Else the number of iterations in a call, which follows the clock, would decide where it stops."""
    graph = motet.trace(PPO, motet.make("CartPole-v1"), total_timesteps=32 * 5_000)
    stopper = Stopper(lambda row: False, Reporter(graph, motet.anakin(), None))  # type: ignore[arg-type]
    assert stopper.every == 5
    assert [stopper.limit(iteration) for iteration in (0, 3, 5)] == [5, 2, 5]


def test_the_command_line_stops_too_and_says_why(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["ppo", "CartPole-v1", "--num-envs", "4", "--num-steps", "8", "--hidden", "8", "--total-timesteps", "640",
             "--preset", "anakin", "--evaluate-episodes", "0", "--run-dir", "run"]  # fmt: skip
    evaluated = ["--eval-steps", "96", "--eval-episodes", "2", "--stop-when", "eval/return >= 1"]
    assert cli.main(["train", *words, *evaluated]) == 0
    said = capsys.readouterr().out
    assert "steps       96 of 640 in 3 whole iterations: stopped, since eval/return >= 1 held after 96 steps" in said
    assert "best        return" in said
    assert cli.main(["train", *words, "--stop-when", "eval/return"]) == 2
    assert "stop_when must be a column" in capsys.readouterr().err
