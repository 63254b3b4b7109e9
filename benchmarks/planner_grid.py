"""The grid that the planner is tried on: algorithms on environments, and plans for each.

A task is held out if nobody had looked at the errors of its predictions when the model was last changed. One that was
published before is held out no more: so it went with IMPALA on CartPole and TD3 on Pendulum. Whoever changes the model
tries it on the others, and takes the mark away from those that were looked at meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

import motet
from motet.plan.plan import Plan


class Slow(gymnasium.Env):
    """Half a millisecond of work for a step, as simulators of physics have."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 200
        return np.zeros(8, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.perf_counter() + 0.5e-3
        while time.perf_counter() < end:
            pass
        self.left -= 1
        return np.zeros(8, np.float32), 1.0, self.left == 0, False, {}


@dataclass(frozen=True)
class Task:
    """An algorithm on an environment, and plans for it."""

    name: str
    algorithm: motet.Algorithm
    env: Any
    plans: Mapping[str, Plan]
    held_out: bool = False
    """Whether nobody had looked at its errors when the model was last changed."""

    def __hash__(self) -> int:
        return hash(self.name)


PPO = motet.PPO(num_envs=64, num_steps=128, update_epochs=4, num_minibatches=4, hidden=(64, 64))
IMPALA = motet.IMPALA(num_envs=64, num_steps=20)
HOSTED = {
    "multi_learner(1)": motet.multi_learner(1),
    "multi_learner(1, workers=2)": motet.multi_learner(1, workers=2),
    "batched(2)": motet.batched(2),
    "sebulba(threads=1)": motet.sebulba(threads=1),
    "sebulba(threads=2)": motet.sebulba(threads=2),
    "coarse(2)": motet.coarse(2),
    "fine(2)": motet.fine(2),
}
COMPILED = {
    "anakin()": motet.anakin(),
    "coarse(1, lag=1)": motet.coarse(1, lag=1),
    "coarse(2)": motet.coarse(2),
    "coarse(2, lag=1)": motet.coarse(2, lag=1),
    "fine(2)": motet.fine(2),
}
REPLAY = {
    "anakin()": motet.anakin(),
    "coarse(1, lag=1)": motet.coarse(1, lag=1),
    "central(2)": motet.central(2),
    "pearl(lag=1)": motet.pearl(lag=1),
    "pearl(lag=1, prefetch=1)": motet.pearl(lag=1, prefetch=1),
}
HOSTED_REPLAY = {
    "multi_learner(1)": motet.multi_learner(1),
    "batched(2)": motet.batched(2),
    "sebulba(threads=1)": motet.sebulba(threads=1),
    "central(2)": motet.central(2),
    "pearl(lag=1)": motet.pearl(lag=1),
}
TASKS = (
    Task("ppo, CartPole", PPO, "CartPole-v1", COMPILED),
    Task("ppo, Gymnasium's CartPole", PPO, "gymnasium/CartPole-v1", HOSTED),
    Task("ppo, EnvPool's CartPole", PPO, "envpool/CartPole-v1", HOSTED),
    Task("ppo, a slow environment", motet.PPO(num_envs=8, num_steps=32, hidden=(64, 64)), Slow, HOSTED),
    Task("impala, CartPole", IMPALA, "CartPole-v1", COMPILED),
    Task("impala, Gymnasium's CartPole", IMPALA, "gymnasium/CartPole-v1", HOSTED),
    Task("dqn, CartPole", motet.DQN(num_envs=8), "CartPole-v1", REPLAY),
    Task("dqn, Gymnasium's CartPole", motet.DQN(num_envs=8), "gymnasium/CartPole-v1", HOSTED_REPLAY, held_out=True),
    Task("sac, Pendulum", motet.SAC(num_envs=8), "Pendulum-v1", REPLAY),
    Task("td3, Pendulum", motet.TD3(num_envs=8, hidden=(64, 64)), "Pendulum-v1", REPLAY),
    Task("a2c, Gymnasium's Acrobot", motet.A2C(num_envs=16), "gymnasium/Acrobot-v1", HOSTED),
    Task("ppo, Gymnasium's Pendulum", motet.PPO(num_envs=16), "gymnasium/Pendulum-v1", HOSTED, held_out=True),
    Task("ddpg, Pendulum", motet.DDPG(num_envs=8), "Pendulum-v1", REPLAY, held_out=True),
)
HELD_OUT = frozenset(task.name for task in TASKS if task.held_out)
