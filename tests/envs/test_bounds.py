"""Observations outside of their declared bounds: counted exactly, told once, and an error only on demand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import motet
from motet import cli
from motet.bounds import Outside
from motet.envs.cartpole import CartPole
from motet.envs.examine import examine
from motet.envs.gymnasium import Gymnasium
from motet.flow.host import HostEnvironment, HostStep, Opening

TINY = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
SHORT = ["--num-envs", "4", "--num-steps", "5", "--hidden", "4", "--total-timesteps", "40", "--preset", "multi_learner",
         "--learners", "1"]  # fmt: skip


class Beyond(gymnasium.Env[Any, Any]):
    """Counts to 5 within bounds of 0 to 3, so that 4 and 5 lie outside; its second number never does."""

    observation_space = Box(np.float32(0), np.float32([3, 100]), (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.float32([self.count, self.count]), 1.0, self.count == 5, False, {}


WORST = "the observation at [0] was 5, above 3"


def play(env: HostEnvironment, steps: int, **opening: Any) -> tuple[Outside, list[HostStep]]:
    """What `steps` steps of four environments leave in the tally."""
    pool = env.open(Opening(0, 4, 0, **opening))
    try:
        pool.reset()
        action = (np.zeros(4, np.int32),)
        seen = [HostStep(*(np.array(part) if isinstance(part, np.ndarray) else (part[0].copy(),) for part in each))
                for each in (pool.step(action) for _ in range(steps))]  # fmt: skip
    finally:
        pool.close()
    return env.outside.take(), seen  # type: ignore[attr-defined]


def vector(count: int, mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([Beyond] * count, autoreset_mode=mode)


@pytest.mark.parametrize(
    "env",
    [
        Gymnasium(Beyond),
        *(Gymnasium(partial(vector, mode=mode), vector=True) for mode in AutoresetMode),
    ],
    ids=["single", *(mode.value for mode in AutoresetMode)],
)
def test_every_number_outside_counts_once(env: HostEnvironment) -> None:
    outside, seen = play(env, 10)  # two episodes of four environments, with two numbers outside in each
    assert (outside.count, outside.worst) == (16, WORST)
    assert [step.next_observation[0][0, 0] for step in seen] == [1, 2, 3, 4, 5] * 2
    assert [step.observation[0][0, 0] for step in seen] == [1, 2, 3, 4, 0] * 2


def test_workers_count_too() -> None:
    outside, _ = play(Gymnasium(Beyond), 9, workers=3)
    assert (outside.count, outside.worst) == (12, WORST)


def test_one_environment_alone_counts() -> None:
    env = Gymnasium(Beyond)
    pool = env.open(Opening(0, 1, 0))
    pool.reset()
    for _ in range(5):
        pool.step((np.zeros(1, np.int32),))
    pool.close()
    pool.close()
    assert env.outside.take().count == 2
    assert not env.outside.take()


def test_the_worst_is_the_farthest_from_its_bound() -> None:
    assert Outside(1, 0.5, "this") + Outside(2, 0.25, "that") == Outside(3, 0.5, "this")
    assert str(Outside(1, 0.5, "this")).startswith("1 observed number outside")


def test_bounds_can_be_insisted_on() -> None:
    with pytest.raises(motet.BadEnvironment, match=r"holds 4.0 at \[0\], outside of its space, -1e-06 to 3.000003"):
        play(Gymnasium(Beyond, check_bounds=True), 9)
    with pytest.raises(motet.BadEnvironment, match="outside of its space"):
        motet.train(TINY, Gymnasium(Beyond, check_bounds=True), motet.multi_learner(1), total_timesteps=40)


class Whole(Beyond):
    """The same with bytes: 300 is none."""

    observation_space = Box(0, 3, (2,), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.uint8), {}

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (observation.astype(np.int64) * (75 if self.count == 4 else 1), *rest)


def test_what_the_array_cannot_hold_is_an_error_nevertheless() -> None:
    with pytest.raises(motet.BadEnvironment, match=r"holds 300 at \[0\], outside of its space, 0 to 255"):
        play(Gymnasium(Whole), 9)
    with pytest.raises(motet.BadEnvironment, match="outside of its space, 0 to 2"):
        play(Gymnasium(Choosy), 9)


class Choosy(Beyond):
    """A choice that there is not."""

    observation_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return (int(observation[0]), *rest)


def test_training_and_evaluation_count() -> None:
    env = Gymnasium(Beyond)
    result = motet.train(TINY, env, motet.multi_learner(1), total_timesteps=40)
    assert (result.outside.count, result.outside.worst) == (16, WORST)
    assert motet.evaluate(result.policy, env, episodes=3).outside.count == 6


@pytest.fixture
def registered() -> Any:
    gymnasium.register("Beyond-v0", Beyond)
    yield "Beyond-v0"
    del gymnasium.registry["Beyond-v0"]


def test_a_run_warns_once_in_its_summary(registered: str, tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["train", "a2c", registered, *SHORT, "--evaluate-episodes", "2", "--run-dir", "run"]
    assert cli.main(args) == 0
    out = capsys.readouterr().out
    assert re.search(rf"^warning +20 observed numbers .*{re.escape(WORST)} \(--strict", out, re.MULTILINE)
    assert out.count("outside of") == 1
    assert cli.main(["evaluate", "run", "--episodes", "2"]) == 0
    assert "warning: 4 observed numbers" in capsys.readouterr().err
    assert cli.main(["evaluate", "run", "--episodes", "2", "--strict"]) == 2
    assert cli.main([*args[:-1], "other", "--strict"]) == 2
    assert "outside of its space" in capsys.readouterr().err


def test_check_env_counts_or_finds(registered: str, capsys: Any) -> None:
    assert cli.main(["check-env", registered, "--steps", "20"]) == 0
    assert f"note: 32 observed numbers outside of the bounds that the space declares; the worst: {WORST}." in (
        capsys.readouterr().out
    )
    assert cli.main(["check-env", registered, "--steps", "20", "--strict"]) == 1
    assert "must be within its space, 0 to 3 at [0]" in capsys.readouterr().out


@dataclass(frozen=True)
class Climbing(CartPole):
    """Leaves its space."""

    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, observation, reward, _ = super().step(state, action, key)
        return state, observation + 0.1, reward, jnp.zeros((), bool)


def test_check_env_counts_in_jax_environments() -> None:
    seen = examine(Climbing(), steps=300)
    assert not seen.findings
    assert any("outside of the bounds" in note for note in seen.notes)
    seen = examine(Climbing(), steps=300, strict=True)
    assert any("must be within its space" in finding for finding in seen.findings)


class Late(Beyond):
    """Fails in evaluations alone: it knows them by their seeds."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        if EVALUATING:
            raise RuntimeError("the battery is empty")
        return (observation, *rest)


EVALUATING: list[int] = []


@pytest.mark.parametrize(
    ("error", "code"), [(None, 4), (ZeroDivisionError("apples"), 4), (SystemExit(0), 4), (KeyboardInterrupt(), 130)]
)
def test_a_failed_evaluation_hides_nothing_of_the_training(
    error: Any, code: int, tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    from motet.runs import evaluate

    real = evaluate.evaluate

    def fail(*args: Any, **options: Any) -> Any:
        if error is not None:
            raise error
        EVALUATING.append(1)
        return real(*args, **options)

    monkeypatch.setattr(evaluate, "evaluate", fail)
    gymnasium.register("Late-v0", Late)
    try:
        assert cli.main(["train", "a2c", "Late-v0", *SHORT, "--run-dir", "run"]) == code
    finally:
        del gymnasium.registry["Late-v0"]
        EVALUATING.clear()
    out, err = capsys.readouterr()
    assert "steps       40 in 2 whole iterations" in out
    assert re.search("^run folder  run$", out, re.MULTILINE)
    if code == 4:
        assert "The training is over and its policy is in" in err and "but the evaluation failed" in err
        assert (tmp_path / "run" / "policy.safetensors").exists()
