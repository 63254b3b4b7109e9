"""Returns and advantages over T steps, written for any trailing axes.

By hand because rlax needs a nightly build of TensorFlow Probability. In all of them an episode's end of either
kind cuts the trace, and only termination makes the value that follows 0: where an episode was truncated,
`next_value` is the value of its true final observation. A step that never happened (`valid` False: its environment's
worker died) adds nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def real(values: jax.Array, valid: Any) -> jax.Array:
    """Values of steps, with 0 for those that never happened; `valid` is () where all did."""
    return values if isinstance(valid, tuple) else jnp.where(valid, values, 0)


def gae(
    reward_t: jax.Array,  # [T, ...] of the step from t to t + 1
    value_t: jax.Array,  # [T, ...]
    next_value_t: jax.Array,  # [T, ...] of the true next observation
    terminated_t: jax.Array,  # [T, ...]
    truncated_t: jax.Array,  # [T, ...]
    discount: float,
    trace: float,
    valid_t: Any = (),  # [T, ...]
) -> jax.Array:
    """Generalised advantage estimates: A_t = delta_t + discount * trace * A_{t+1}, cut at episode ends."""
    delta_t = real(reward_t + discount * jnp.where(terminated_t, 0, next_value_t) - value_t, valid_t)
    keep_t = jnp.where(terminated_t | truncated_t, 0, discount * trace).astype(delta_t.dtype)

    def step(advantage_tp1: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, keep = now
        advantage = delta + keep * advantage_tp1
        return advantage, advantage

    _, advantage_t = jax.lax.scan(step, jnp.zeros_like(delta_t[0]), (delta_t, keep_t), reverse=True, unroll=8)
    return advantage_t


def vtrace(
    log_ratio_t: jax.Array,  # [T, ...] log of how much likelier the action is under the policy that learns
    reward_t: jax.Array,  # [T, ...]
    value_t: jax.Array,  # [T, ...]
    next_value_t: jax.Array,  # [T, ...] of the true next observation
    terminated_t: jax.Array,  # [T, ...]
    truncated_t: jax.Array,  # [T, ...]
    discount: float,
    trace: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    valid_t: Any = (),  # [T, ...]
) -> tuple[jax.Array, jax.Array]:
    """V-trace (Espeholt et al. 2018) -> value targets v_t and advantages of the policy gradient, both [T, ...].

    With rho_t = min(rho_clip, ratio_t) and c_t = trace * min(c_clip, ratio_t):

        v_t = V_t + rho_t * (reward_t + discount * V_{t+1} - V_t) + discount * c_t * (v_{t+1} - V_{t+1})
        A_t = rho_t * (reward_t + discount * (V_{t+1} + trace * (v_{t+1} - V_{t+1})) - V_t)

    cut at episode ends. On-policy and unclipped, A_t is the generalised advantage estimate and v_t is V_t + A_t.
    """
    ratio_t = jnp.exp(log_ratio_t)
    rho_t, c_t = jnp.minimum(rho_clip, ratio_t), trace * jnp.minimum(c_clip, ratio_t)
    bootstrap_t = jnp.where(terminated_t, 0, next_value_t)
    delta_t = real(rho_t * (reward_t + discount * bootstrap_t - value_t), valid_t)
    keep_t = jnp.where(terminated_t | truncated_t, 0, discount).astype(delta_t.dtype)

    def step(
        correction_tp1: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        delta, keep, c = now
        correction = delta + keep * c * correction_tp1
        return correction, (correction, keep * correction_tp1)

    last = jnp.zeros_like(delta_t[0])
    _, (correction_t, next_correction_t) = jax.lax.scan(step, last, (delta_t, keep_t, c_t), reverse=True, unroll=8)
    return value_t + correction_t, delta_t + rho_t * trace * next_correction_t
