"""Evaluations during training see copies, disturb nothing, and keep the best policy."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet import cli
from motet.runs import evaluate as played
from motet.runs import host_evaluation

PPO = motet.PPO(num_envs=4, num_steps=8, hidden=(8,))
CASES: dict[str, tuple[Any, Any]] = {
    "anakin": ("CartPole-v1", motet.anakin()),
    "coarse, lag 1": ("CartPole-v1", motet.coarse(2, lag=1)),
    "host": ("gymnasium/CartPole-v1", motet.multi_learner(1)),
}


def train(case: str = "anakin", **more: Any) -> motet.Result:
    env, plan = CASES[case]
    return motet.train(PPO, env, plan, total_timesteps=384, seed=5, **more)


def without_time(rows: list[Any]) -> list[Any]:
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]


@pytest.mark.parametrize("case", CASES)
def test_a_run_with_evaluations_is_the_run_without(case: str) -> None:
    plain, judged = train(case), train(case, eval_steps=100, eval_episodes=3)
    assert without_time(judged.history) == without_time(plain.history)
    jax.tree.map(np.testing.assert_array_equal, judged.state, plain.state)
    assert [row["steps"] for row in judged.evaluations] == [128, 256, 384], "rounded up to whole iterations"
    assert all(row["eval/episodes"] == 3 and row["eval/return"] > 0 for row in judged.evaluations)


def test_an_evaluation_is_of_the_policy_at_its_step(tmp_path: Path) -> None:
    """A shorter run, whose step size does not follow its length, ends where the longer one was judged."""
    fixed = motet.PPO(num_envs=4, num_steps=8, hidden=(8,), anneal=False)
    seen: list[Any] = []

    class Seen(motet.Callback):
        def evaluation(self, evaluation: Any) -> None:
            seen.append(evaluation)

    motet.train(fixed, "CartPole-v1", motet.anakin(), total_timesteps=384, eval_steps=192, callbacks=[Seen()])
    short = motet.train(fixed, "CartPole-v1", motet.anakin(), total_timesteps=192)
    assert [each.steps for each in seen] == [192, 384]
    jax.tree.map(np.testing.assert_array_equal, seen[0].policy.params, short.policy.params)
    wanted = motet.evaluate(short.policy, "CartPole-v1", episodes=16)
    np.testing.assert_array_equal(seen[0].scores.returns, wanted.returns)


@pytest.mark.parametrize("case", ["anakin", "host"])
def test_nothing_is_compiled_twice_for_evaluations(case: str) -> None:
    program = played._play if case == "anakin" else host_evaluation._decided
    before = program._cache_size()  # type: ignore[attr-defined]
    result = train(case, eval_steps=1, eval_episodes=5)
    assert len(result.evaluations) == result.iterations == 12
    assert program._cache_size() - before == 1  # type: ignore[attr-defined]


def test_the_best_policy_is_kept_and_can_be_used(tmp_path: Path, capsys: Any) -> None:
    result = train(run_dir=tmp_path / "run", eval_steps=64, eval_episodes=8)
    returns = [row["eval/return"] for row in result.evaluations]
    best = returns.index(max(returns))
    assert result.best is not None and result.best.mean == max(returns)
    assert result.best.iteration == result.evaluations[best]["iteration"]
    told = json.loads((tmp_path / "run" / "best" / "evaluation.json").read_text())
    assert told["return"] == max(returns) and told["steps"] == result.evaluations[best]["steps"]
    written = (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == result.evaluations
    for words in ([str(tmp_path / "run"), "--checkpoint", "best"], [str(tmp_path / "run" / "best")]):
        assert cli.main(["evaluate", *words, "--episodes", "8", "--seed", "5"]) == 0
        assert f"return {max(returns):.1f} " in capsys.readouterr().out
    jax.tree.map(np.testing.assert_array_equal, motet.load(tmp_path / "run" / "best").params, result.best.policy.params)


def test_a_run_that_goes_on_remembers_how_good_the_best_was(tmp_path: Path) -> None:
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "best" / "evaluation.json").write_text('{"return": 1e6}')
    from motet.runs.evaluated import best_score

    assert best_score(tmp_path / "run") == 1e6
    assert best_score(tmp_path) is None


def test_evaluations_may_explore(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    evaluate = played.evaluate
    monkeypatch.setattr("motet.judging.evaluate", lambda *a, **k: asked.append(k["explore"]) or evaluate(*a, **k))
    one = train(eval_steps=384, eval_episodes=16)
    other = train(eval_steps=384, eval_episodes=16, eval_explore=True)
    assert asked == [False, True]
    assert one.evaluations[-1]["eval/return"] != other.evaluations[-1]["eval/return"]


def test_evaluations_may_come_at_times() -> None:
    result = train(eval_seconds=1e-6, eval_episodes=2)
    assert len(result.evaluations) > 1
    jax.tree.map(np.testing.assert_array_equal, result.state, train().state)


def test_an_environment_that_fails_in_an_evaluation_costs_a_point_and_no_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise motet.EnvironmentFailed("no more episodes")

    monkeypatch.setattr("motet.judging.evaluate", fails)
    result = train(eval_steps=192)
    assert result.iterations == 12 and not result.evaluations and result.best is None
    assert result.warnings == ("an evaluation failed: EnvironmentFailed: no more episodes",) * 2


@pytest.mark.parametrize("case", ["anakin", "coarse, lag 1"])
def test_a_callback_that_raises_at_an_evaluation_ends_the_run(case: str) -> None:
    class Raises(motet.Callback):
        def evaluation(self, evaluation: Any) -> None:
            raise ArithmeticError("too good")

    with pytest.raises(ArithmeticError, match="too good"):
        train(case, eval_steps=96, eval_episodes=2, callbacks=[Raises()])


def test_training_goes_on_beside_a_slow_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes long does not hold up what comes before the next one is due."""
    evaluate, told = played.evaluate, []

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(1.0)
        told.append("evaluated")
        return evaluate(*args, **more)

    class Rows(motet.Callback):
        def row(self, row: Any) -> None:
            told.append(row["iteration"])

    monkeypatch.setattr("motet.judging.evaluate", slow)
    train("coarse, lag 1", eval_steps=192, callbacks=[Rows()])
    assert told.index(7) < told.index("evaluated")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eval_steps": 0}, "eval_steps must be at least 1, got 0"),
        ({"eval_seconds": 0}, "eval_seconds must be above 0"),
        ({"eval_steps": 1, "eval_seconds": 1}, "exclude each other"),
        ({"eval_steps": 1, "eval_episodes": 0}, "eval_episodes must be at least 1"),
    ],
)
def test_bad_schedules_are_refused(options: Any, says: str) -> None:
    with pytest.raises(motet.BadOption, match=says):
        train(**options)


def test_a_resumed_run_is_judged_and_stopped_as_the_whole_one(tmp_path: Path) -> None:
    """With evaluations at the same steps, the better of the best ones kept, and the same end."""
    wanted: Any = {"eval_steps": 96, "eval_episodes": 4, "stop_when": "eval/length >= 1e5", "checkpoint_steps": 32}

    class Interrupts(motet.Callback):
        def row(self, row: Any) -> None:
            if row["iteration"] == 7:
                raise RuntimeError("out of luck")

    whole = train(run_dir=tmp_path / "whole", **wanted)
    with pytest.raises(RuntimeError, match="out of luck"):
        train(run_dir=tmp_path / "run", callbacks=[Interrupts()], **wanted)
    resumed = motet.resume(tmp_path / "run", progress=False)
    told = [(tmp_path / name / "evaluations.jsonl").read_text().splitlines() for name in ("whole", "run")]
    assert without_time([json.loads(line) for line in told[1]]) == without_time([json.loads(line) for line in told[0]])
    best = [json.loads((tmp_path / name / "best" / "evaluation.json").read_text()) for name in ("whole", "run")]
    assert without_time(best)[0] == without_time(best)[1]
    jax.tree.map(np.testing.assert_array_equal, resumed.state, whole.state)
    assert motet.load(tmp_path / "run" / "best").params is not None
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["run"]["stop_when"] == "eval/length >= 1e5" and config["run"]["eval_steps"] == 96
