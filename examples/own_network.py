"""A network and an optimiser of your own, kept by name with the run, and the policy loaded again.

`Branches` reads the joints of Acrobot apart before it joins them. It is a flax module for one observation; motet maps
it over environments and minibatches, and tells it how many `outputs` it needs. `docs/networks.md` says what networks
get and must return.

    python examples/own_network.py --steps 200_000
    motet train ppo Acrobot-v1 --policy-network examples/own_network.py:Branches
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import tyro

import motet


class Branches(nn.Module):
    """A layer for each joint and one for the speeds, side by side, and a layer on top of them."""

    outputs: int
    width: int = 32

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        parts = jnp.split(features, 3)  # cosine and sine of one joint, of the other, and the two speeds
        seen = jnp.concatenate([nn.tanh(nn.Dense(self.width)(part)) for part in parts])
        return nn.Dense(self.outputs)(nn.silu(nn.Dense(self.width)(seen)))


def optimizer(updates: int) -> optax.GradientTransformation:
    """Adam with weight decay, and a step size that rises at first and then falls."""
    rate = optax.warmup_cosine_decay_schedule(0.0, 2e-3, updates // 20, updates)
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(rate, weight_decay=1e-4))


def main(steps: int = 200_000, envs: int = 32) -> None:
    """Train PPO with them, load the policy from the run's folder and play."""
    ppo = motet.PPO(
        num_envs=envs,
        num_steps=64,
        policy_network=Branches,
        value_network=Branches(outputs=1, width=64),
        optimizer=optimizer,
    )
    with TemporaryDirectory() as folder:
        motet.train(ppo, "Acrobot-v1", total_timesteps=steps, run_dir=f"{folder}/run")
        policy = motet.Policy.load(f"{folder}/run", motet.PPO)
    print(f"policy: {policy.algorithm.policy_network}")
    print(motet.evaluate(policy, "Acrobot-v1", episodes=32))


if __name__ == "__main__":
    tyro.cli(main)
