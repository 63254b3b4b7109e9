"""Environments that hand out memory that they share: every row holds its own environment's observation."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from motet.envs.examine import examine
from motet.envs.gymnasium import Gymnasium
from motet.flow.host import Opening


class Lending(gymnasium.Env[Any, Any]):
    """All instances write into one buffer of their class, and hand it out: as it is, as a view, or in a dictionary."""

    action_space = Discrete(2)
    buffer = np.zeros(2, np.float32)
    made = 0

    def __init__(self, kind: str, episode: int = 4):
        self.kind, self.episode = kind, episode
        box = Box(-1e6, 1e6, (2,), np.float64 if kind == "wide" else np.float32)
        self.observation_space = gymnasium.spaces.Dict({"a": box}) if kind == "dict" else box

    def look(self) -> Any:
        Lending.buffer[:] = self.own, self.count
        if self.kind == "dict":
            return {"a": Lending.buffer}
        return Lending.buffer[:] if self.kind == "view" else Lending.buffer

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.own = seed % 1000
        self.count = 0
        return self.look(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.look(), 0.0, self.count == self.episode, False, {}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["same", "view", "wide", "dict"])
def test_environments_may_share_one_buffer(kind: str, workers: int) -> None:
    opening = Opening(0, 4, 0, workers=workers)
    own = [opening.seed_of(index) % 1000 for index in range(4)]
    assert len(set(own)) == 4
    pool = Gymnasium(partial(Lending, kind)).open(opening)
    try:
        assert pool.reset()[0].tolist() == [[each, 0] for each in own]
        for count in range(1, 10):
            step = pool.step((np.zeros(4, np.int32),))
            now = (count - 1) % 4 + 1
            assert step.next_observation[0].tolist() == [[each, now] for each in own]
            assert step.observation[0].tolist() == [[each, now % 4] for each in own]
    finally:
        pool.close()


@pytest.mark.parametrize("kind", ["same", "view", "dict"])
def test_check_env_finds_a_shared_buffer(kind: str) -> None:
    seen = examine(Gymnasium(partial(Lending, kind)), steps=20)
    assert [finding for finding in seen.findings if "returns the same memory" in finding], seen.findings


def test_check_env_does_not_mind_a_buffer_of_ones_own() -> None:
    assert not examine(Gymnasium("CartPole-v1"), steps=20).findings
