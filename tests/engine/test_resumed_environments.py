"""Host environments of a run that is taken up again: new episodes, and a step that nobody learns from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from motet.engine.environments import Environments
from motet.flow.environment import advance_host
from motet.flow.host import HostEnvironment, HostStep, Leaves, Opening


class Pool:
    """Two environments that count their steps."""

    def __init__(self, opening: Opening):
        self.opening, self.steps = opening, 0

    def reset(self) -> Leaves:
        return (np.full((2, 1), 7.0, np.float32),)

    def step(self, action: Leaves) -> HostStep:
        self.steps += 1
        observation, no = (np.full((2, 1), 8.0, np.float32),), np.zeros(2, bool)
        return HostStep(observation, observation, np.ones(2, np.float32), no, no, ~no, np.zeros(2, np.int32))

    def close(self) -> None: ...


class Counting(HostEnvironment):
    def open(self, opening: Opening) -> Pool:
        return Pool(opening)


def resumed() -> tuple[Environments, Pool]:
    any_: Any = None
    environments = Environments(any_, any_, Opening(0, 2, seed=1, resumes=1))
    node: Any = SimpleNamespace(host=SimpleNamespace(environment=Counting()))
    environments.resume(node)
    assert isinstance(environments.pool, Pool)
    return environments, environments.pool


def test_the_first_step_is_lost_and_the_second_is_taken() -> None:
    environments, pool = resumed()
    lost = environments.step((np.zeros(2),))
    assert pool.steps == 0, "its action was meant for episodes that are gone"
    assert not lost.valid.any()
    np.testing.assert_array_equal(lost.observation[0], 7.0)
    taken = environments.step((np.zeros(2),))
    assert pool.steps == 1 and taken.valid.all()


def test_a_lost_step_ends_its_episode_without_counting_it() -> None:
    """Nothing may be traced across it, and no return is told of an episode that came to no end."""
    environments, _ = resumed()
    step = environments.step((np.zeros(2),))
    length, total, *rest = advance_host(step, np.full(2, 30, np.int32), np.full(2, 30.0, np.float32))
    *_, truncated, first, finished_return, finished_length, finished, valid, restarts = rest
    assert truncated.all() and first.all() and not valid.any() and not finished.any()
    assert not (length.any() or total.any() or finished_return.any() or finished_length.any() or restarts.any())


def test_each_resume_brings_other_episodes() -> None:
    seeds = {Opening(0, 2, seed=1, resumes=count).seed_of(0, restart) for count in range(3) for restart in range(3)}
    assert len(seeds) == 9
    assert Opening(0, 2, seed=1).seed_of(0) == Opening(0, 2, seed=1, resumes=0).seed_of(0)
