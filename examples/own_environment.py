"""An environment of your own: a Gymnasium class, which knows nothing of motet.

Keep a room at 20 degrees by switching a heater on and off. A class or a function that makes an environment is all that
`motet.train` needs; worker processes step it. Below a time limit of its own an episode is *truncated*, not terminated:
what would have followed still counts.

    python examples/own_environment.py --steps 100_000
    motet train ppo examples/own_environment.py:Room --env-kwargs '{"heater": 4.0}'
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import tyro

import motet


class Room(gymnasium.Env):
    """A room that loses heat to the outside; a step is ten minutes, and a reward at most 1."""

    observation_space = gymnasium.spaces.Box(-50.0, 50.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, heater: float = 3.0):
        self.heater = heater

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.inside, self.outside = self.np_random.uniform(10, 30), self.np_random.uniform(-5, 15)
        self.count = 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.inside += 0.1 * (self.outside - self.inside) + self.heater * action
        self.count += 1
        reward = 1 - min(abs(self.inside - 20) / 10, 1)
        return self.observe(), reward, False, self.count == 48, {}

    def observe(self) -> np.ndarray:
        """Degrees above 20, inside and outside; in tens, as networks like numbers that are near 1."""
        return np.array([self.inside - 20, self.outside - 20], np.float32) / 10


def main(steps: int = 100_000, workers: int = 2) -> None:
    """Train PPO in so many steps, with so many processes that step the rooms."""
    ppo = motet.PPO(num_envs=16, num_steps=48, hidden=(32, 32))
    result = motet.train(ppo, Room, motet.batched(workers), total_timesteps=steps)
    print(result)
    print(motet.evaluate(result.policy, Room, episodes=16, workers=workers))
    for inside in (18.0, 22.0):
        action = result.policy(np.array([inside - 20, -10]) / 10)
        print(f"at {inside:.0f} degrees: {'heat' if action else 'do not heat'}")


if __name__ == "__main__":
    tyro.cli(main)
