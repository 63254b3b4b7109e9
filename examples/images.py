"""Learning from pictures: a convolutional network looks at what a wrapper draws.

Catch shows a board of 10 x 5 numbers. Here a wrapper draws it as a picture of 40 x 40 pixels in bytes, which PPO then
sees through the network of Mnih et al. (`torso="nature"`; "impala" is deeper). Left alone, `torso="auto"` chooses the
same for pictures of this kind. For Atari see `motet train ppo ALE/Pong-v5`.

    python examples/images.py --steps 30_000
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import tyro

import motet


@dataclass(frozen=True)
class Drawn(motet.Environment):
    """The board of another environment as a picture in bytes."""

    env: motet.Environment

    observation_space = motet.Box(0.0, 255.0, (40, 40, 1), "uint8")

    @property
    def action_space(self) -> motet.Discrete:
        return self.env.action_space

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        state, board = self.env.reset(key)
        return state, self.draw(board)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple:
        state, board, reward, terminated = self.env.step(state, action, key)
        return state, self.draw(board), reward, terminated

    def draw(self, board: jax.Array) -> jax.Array:
        pixels = jnp.repeat(jnp.repeat(board, 4, axis=0), 8, axis=1)
        return (255 * pixels[..., None]).astype(jnp.uint8)


def main(steps: int = 30_000) -> None:
    """Train PPO in so many steps."""
    env = Drawn(motet.make("Catch-v0"))
    print(f"{env.env.name}, drawn: {env.observation_space}")
    ppo = motet.PPO(num_envs=32, num_steps=9, num_minibatches=3, learning_rate=1e-3, torso="nature")
    result = motet.train(ppo, env, total_timesteps=steps)
    print(result)
    print(motet.evaluate(result.policy, env, episodes=64))


if __name__ == "__main__":
    tyro.cli(main)
