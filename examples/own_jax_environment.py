"""An environment of your own in JAX: two pure functions, compiled together with the learning.

Let a rocket fall, and fire its engine in time to touch down softly. There are no worker processes: environment, policy
and learner become one program, which runs many times as fast. `motet check-env` looks at it before you train.

    python examples/own_jax_environment.py --steps 500_000
    motet check-env examples/own_jax_environment.py:Rocket
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import tyro

import motet


@dataclass(frozen=True)
class Rocket(motet.Environment):
    """Touch down slowly; the reward is 1 less the speed of the impact, and each firing costs a little."""

    thrust: float = 0.03
    gravity: float = 0.01

    observation_space = motet.Box(-2.0, 2.0, (2,))
    action_space = motet.Discrete(2)
    time_limit = 200

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        height = jax.random.uniform(key, minval=0.5, maxval=1.0)
        state = jnp.stack([height, jnp.zeros_like(height)])  # height and speed, upwards
        return state, state

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> tuple:
        """Python's `if` does not work on arrays that are traced: `jnp.where` does."""
        height, speed = state
        speed = jnp.clip(speed - self.gravity + self.thrust * action, -1, 1)
        height = jnp.minimum(height + speed, 2)
        landed = height <= 0
        reward = jnp.where(landed, 1 - 5 * jnp.abs(speed), 0) - 0.002 * action
        state = jnp.stack([jnp.maximum(height, 0), speed])
        return state, state, reward, landed


def main(steps: int = 500_000) -> None:
    """Train PPO in so many steps."""
    ppo = motet.PPO(num_envs=64, num_steps=32, hidden=(32, 32))
    result = motet.train(ppo, Rocket(), total_timesteps=steps)
    print(result)
    print("usual rocket: ", motet.evaluate(result.policy, Rocket(), episodes=64))
    print("weaker engine:", motet.evaluate(result.policy, Rocket(thrust=0.02), episodes=64))


if __name__ == "__main__":
    tyro.cli(main)
