"""An algorithm of your own: REINFORCE in a few lines, and what plans make of it.

The methods are pure functions; `loop` joins them. Nothing in it says where it runs, so that it runs everywhere: one
program, or two actors and a learner, with the same result. `docs/writing-an-algorithm.md` explains every part.

    python examples/own_algorithm.py --steps 100_000
    motet check-algorithm examples/own_algorithm.py:Reinforce CartPole-v1
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import motet


@dataclass(frozen=True, kw_only=True)
class Reinforce(motet.Algorithm):
    """Make actions likelier that were followed by more reward than usual (Williams 1992)."""

    action_spaces = (motet.Discrete,)

    num_steps: int = motet.option(64, 1)
    """Environment steps per rollout."""
    learning_rate: float = motet.option(1e-2, above=0)
    """Step size of Adam."""
    discount: float = motet.option(0.97, 0, 1)
    """What a reward one step later is worth."""

    @cached_property
    def network(self):
        return nn.Sequential([nn.Dense(32), nn.tanh, nn.Dense(self.spec.action_space.n)])

    def init(self, key):
        params = self.network.init(key, jnp.zeros(self.spec.observation_space.shape))
        return {"params": params, "adam": optax.adam(self.learning_rate).init(params)}

    def policy(self, state):
        return state["params"]

    def act(self, params, memory, observation, key):
        return motet.Decision(jax.random.categorical(key, self.network.apply(params, observation)).astype(jnp.int32))

    def gradient(self, params, rollout):
        def earlier(later, now):
            reward, ended = now
            total = reward + self.discount * jnp.where(ended, 0, later)
            return total, total

        steps = (rollout.reward, rollout.terminated | rollout.truncated)
        returns = jax.lax.scan(earlier, jnp.zeros_like(rollout.reward[0]), steps, reverse=True)[1]
        mean, variance = motet.batch_moments(returns)  # of the whole batch, however it is cut

        def loss(params):
            log_p = jax.nn.log_softmax(self.network.apply(params, rollout.observation))
            chosen = jnp.take_along_axis(log_p, rollout.action[..., None], -1)[..., 0]
            return -jnp.mean(chosen * (returns - mean) / jnp.sqrt(variance + 1e-8))

        return jax.grad(loss)(params)

    def learn(self, state, gradients):
        changes, adam = optax.adam(self.learning_rate).update(gradients, state["adam"])
        return {"params": optax.apply_updates(state["params"], changes), "adam": adam}

    def loop(self, flow):
        rollout = flow.unroll(self.act, steps=self.num_steps)
        flow.apply(self.learn, flow.call(self.gradient, rollout))


def main(steps: int = 100_000) -> None:
    """Train it in so many steps, under two plans."""
    fused = motet.train(Reinforce(), "CartPole-v1", total_timesteps=steps)
    split = motet.train(Reinforce(), "CartPole-v1", motet.coarse(actors=2), total_timesteps=steps)
    print(motet.evaluate(fused.policy, "CartPole-v1", episodes=32))
    pairs = zip(jax.tree.leaves(fused.state["params"]), jax.tree.leaves(split.state["params"]), strict=True)
    print("largest difference between the plans:", max(float(np.abs(one - other).max()) for one, other in pairs))


if __name__ == "__main__":
    tyro.cli(main)
