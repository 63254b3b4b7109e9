"""A policy that remembers: recurrent PPO on a task that hides something.

Of CartPole's four numbers, the two speeds are hidden: who sees only where things are has to remember where they were.
`core="gru"` (or "lstm") puts a recurrent layer between the observation and the rest; minibatches are then whole
sequences. The same wrapper serves on the command line as a class of your own.

    python examples/memory.py --steps 500_000
"""

from __future__ import annotations

from typing import Literal

import tyro

import motet
from motet.envs.wrappers import SelectObservation


def main(steps: int = 500_000, cores: tuple[Literal["none", "gru", "lstm"], ...] = ("none", "gru")) -> None:
    """Train PPO with each of these cores in so many steps, and compare."""
    env = SelectObservation(motet.make("CartPole-v1"), (0, 2))  # where the cart is, and how far the pole leans
    print(f"{env.name}: {env.observation_space}")
    for core in cores:
        ppo = motet.PPO(num_envs=32, num_steps=64, num_minibatches=4, core=core, core_size=32, hidden=(32,))
        result = motet.train(ppo, env, total_timesteps=steps)
        print(f"core {core}: {motet.evaluate(result.policy, env, episodes=32)}")
    # A policy with a memory is told where an episode begins; from then on it carries its memory itself.
    policy = result.policy
    policy.reset()
    print("three looks at the same state:", *(policy([0.0, 0.02]) for _ in range(3)))


if __name__ == "__main__":
    tyro.cli(main)
