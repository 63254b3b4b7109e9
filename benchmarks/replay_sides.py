"""Sides that learn from a replay: the peers' off-policy algorithms, and sum trees alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Sample = Callable[[], None]
WARM = 1_000
"""Steps before the first gradient step, the same everywhere."""


def off_policy(library: str, kind: str, env: str, options: Mapping[str, Any], steps: int) -> Sample:
    """DQN or DDPG of Stable-Baselines3 ("stable_baselines3") or SBX ("sbx"): one gradient step for each step."""
    import importlib

    import gymnasium

    algorithm = getattr(importlib.import_module(library), kind)
    shared = {
        "learning_rate": options["learning_rate"],
        "batch_size": options["batch_size"],
        "buffer_size": options["buffer_size"],
        "learning_starts": WARM,
        "train_freq": 1,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(options["hidden"])},
    }
    if kind == "DQN":
        shared["target_update_interval"] = options["target_period"]
    model = algorithm("MlpPolicy", gymnasium.make(env), device="cpu", **shared)
    model.learn(total_timesteps=WARM + 100)
    return lambda: model.learn(total_timesteps=steps, reset_num_timesteps=False)


def rejax_dqn(options: Mapping[str, Any], steps: int) -> Sample:
    """rejax's DQN: its own training iterations in one compiled loop, one gradient step for each step."""
    from functools import partial

    import jax
    from rejax import DQN

    algorithm = DQN.create(env="CartPole-v1", **options)
    # Its target network is the same arrays at first, which cannot be donated twice.
    state = jax.tree.map(jax.numpy.array, algorithm.init_state(jax.random.key(0)))

    @partial(jax.jit, donate_argnums=0)
    def train(state: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, state: algorithm.train_iteration(state), state)

    def sample() -> None:
        nonlocal state
        state = jax.block_until_ready(train(state))

    while int(state.global_step) <= algorithm.fill_buffer:
        sample()
    return sample


def sum_tree(place: str, what: str, fan_out: int = 2) -> Sample:
    """One hundred calls of a sum tree's `update` or `sample`, of ours or of Tianshou's."""
    from benchmarks import sum_tree as trees

    make, _ = trees.PLACES[place]
    return getattr(make(fan_out), what)
