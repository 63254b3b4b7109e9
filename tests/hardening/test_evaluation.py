"""Broken environments in an evaluation: the same errors, limits and restarts as in training."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import pytest

import motet
from motet.envs import staff, thread
from motet.flow.algorithm import Spec
from motet.runs import host_evaluation
from tests.hardening.broken import Broken
from tests.hardening.left import nothing_left
from tests.hardening.test_environments import FAILED, RAISED, STEP, Adds


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((thread, "CLOSING"), (staff, "GRACE"), (host_evaluation, "CLOSING")):
        monkeypatch.setattr(module, name, 0.3)


def evaluate(make: Any, workers: int, **limits: Any) -> Any:
    env = motet.Gymnasium(make)
    algorithm = Adds().bind(Spec(env.observation_space, env.action_space, 1))
    policy = motet.Policy(algorithm, algorithm.policy(algorithm.init(jax.random.key(0))))
    limits = {"step_timeout": 30.0, "restarts": 1, **limits}
    with nothing_left(hanging=bool(limits.pop("hanging", False))):
        return motet.evaluate(policy, env, episodes=3, workers=workers, **limits)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sound_environment_is_evaluated_alike_in_threads_and_processes(workers: int) -> None:
    score = evaluate(Broken, workers)
    assert score.returns.tolist() == score.lengths.tolist() == [8, 8, 8]
    assert score.finished.all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", RAISED)
def test_what_it_raises_is_named(how: str, workers: int) -> None:
    with pytest.raises(FAILED) as caught:
        evaluate(partial(Broken, how), workers)
    assert (STEP + RAISED[how]).partition("(")[2] in str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_hang_ends_in_time(workers: int) -> None:
    began = time.monotonic()
    with pytest.raises(motet.EnvironmentTimeout, match="still stepping"):
        evaluate(partial(Broken, "hang"), workers, step_timeout=3.0, hanging=True)
    assert time.monotonic() - began < 20


def test_a_death_does_not_take_the_caller_along() -> None:
    with pytest.raises(FAILED, match="killed by signal 9"):
        evaluate(partial(Broken, "die"), 1, restarts=0)


def test_an_episode_whose_worker_died_is_not_counted(tmp_path: Any) -> None:
    score = evaluate(partial(DiesOnce, str(tmp_path / "died")), 1)
    assert (tmp_path / "died").exists()
    assert score.lengths.tolist() == [8, 8, 8]


class DiesOnce(Broken):
    """Its process dies in the fifth step, but only once."""

    def __init__(self, marker: str):
        super().__init__("die")
        self.marker = marker

    def _break(self) -> None:
        try:
            open(self.marker, "x").close()
        except FileExistsError:
            return
        super()._break()
