"""A sweep: seeds x learning rates, one table.

Runs are values: call `motet.train` in a loop and keep what you need. Rows of metrics come at iteration numbers, so that
runs of several seeds share their x-axis and can be averaged row by row.

    python examples/sweep.py --env CartPole-v1 --steps 50_000 --seeds 0 1 2 --rates 3e-4 1e-3 3e-3
"""

from __future__ import annotations

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import motet


def main(
    env: str = "CartPole-v1",
    steps: int = 50_000,
    seeds: tuple[int, ...] = (0, 1, 2),
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3),
    episodes: int = 32,
) -> None:
    """Train PPO once for each seed and learning rate, and evaluate each policy in so many episodes."""
    table = Table("learning rate", *(f"seed {seed}" for seed in seeds), "mean", "half way", title=f"PPO on {env}")
    for rate in rates:
        scores, curves = [], []
        for seed in seeds:
            ppo = motet.PPO(num_envs=32, num_steps=64, learning_rate=rate)
            result = motet.train(ppo, env, total_timesteps=steps, seed=seed, progress=False)
            scores.append(motet.evaluate(result.policy, env, episodes=episodes, seed=seed).mean)
            curves.append([row["return"] for row in result.history])
        halfway = np.array(curves, float).mean(0)[len(curves[0]) // 2]  # the same step in every run
        cells = (*scores, float(np.mean(scores)), halfway)
        table.add_row(f"{rate:g}", *(f"{cell:.1f}" for cell in cells))
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
