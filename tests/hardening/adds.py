"""An algorithm that learns nothing and compiles quickly, but knows whether it was given right rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import motet
from motet.flow.host import Opening
from tests.hardening.broken import END

STEPS = 3
ENVS = 4
ITERATIONS = 4
TIMESTEPS = STEPS * ENVS * ITERATIONS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sum:
    params: jax.Array
    total: jax.Array


@dataclass(frozen=True, kw_only=True)
class Adds(motet.Algorithm):
    """Adds up the rewards of `Broken`, and reports of its rows: the mean reward, who sent them, and how many
    contradict themselves."""

    max_lag = None
    num_envs: int = ENVS

    def init(self, key: jax.Array) -> Sum:
        return Sum(jnp.zeros(()), jnp.zeros(()))

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32))

    def measure(self, params: Any, rollout: Any) -> dict[str, jax.Array]:
        (before, who), (after, same) = (jnp.moveaxis(x, -1, 0) for x in (rollout.observation, rollout.next_observation))
        wrong = (
            (after != before + 1) | (who != same) | (rollout.reward != after) | (rollout.terminated != (after == END))
        )
        rows = {"reward": rollout.reward, "who": who, "wrong": wrong, "rows": jnp.ones_like(who)}
        return {name: jnp.mean(jnp.where(rollout.valid, each, 0.0)) for name, each in rows.items()}

    def apply(self, state: Sum, means: dict[str, jax.Array]) -> Sum:
        return Sum(state.params, state.total + means["reward"] * STEPS * ENVS)

    def loop(self, flow: motet.Flow) -> None:
        means = flow.call(self.measure, flow.unroll(self.act, steps=STEPS))
        flow.apply(self.apply, means)
        flow.report(means)


def sound(iteration: int) -> dict[str, float]:
    """What `Adds` reports of environments that are not broken, in iteration 1, 2, ..., under whatever plan."""
    counts = np.arange(STEPS * (iteration - 1), STEPS * iteration) % END + 1
    opening = Opening(0, ENVS, 0)
    who = np.mean([opening.seed_of(index) % 97 for index in range(ENVS)])
    return {"reward": float(counts.mean()), "who": float(who), "wrong": 0.0, "rows": 1.0}
