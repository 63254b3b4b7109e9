"""Which plan a run has that asks for none: never one that needs lag, and no processes where they only cost time."""

from __future__ import annotations

import os

import gymnasium
import pytest

import motet
from motet.flow.algorithm import Algorithm
from motet.plan.plan import Plan
from motet.training import default_plan

CORES = os.cpu_count() or 1
PPO, DQN = motet.PPO(num_envs=8), motet.DQN(num_envs=1)


class Own(gymnasium.Env):
    """Nobody knows how long its steps take."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("algorithm", "env", "plan"),
    [
        (PPO, "CartPole-v1", motet.anakin()),
        (PPO, "gymnasium/CartPole-v1", motet.multi_learner(1)),
        (PPO, "gymnasium/FrozenLake-v1", motet.multi_learner(1)),
        (PPO, Own, motet.multi_learner(1, workers=min(CORES, 8))),
        (PPO, "envpool/CartPole-v1", motet.multi_learner(1)),
        (DQN, Own, motet.multi_learner(1)),
    ],
)
def test_the_default_follows_the_written_rule(algorithm: Algorithm, env: object, plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr("jax.device_count", lambda: 1)
    chosen = default_plan(algorithm, motet.make(env))  # type: ignore[arg-type]
    assert chosen == plan
    assert all(link.lag == 0 for link in chosen.links.values())
