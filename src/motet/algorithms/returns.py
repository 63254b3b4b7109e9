"""Returns and advantages over T steps, written for any trailing axes.

By hand because rlax needs a nightly build of TensorFlow Probability. In all of them an episode's end of either
kind cuts the trace, and only termination makes the value that follows 0: where an episode was truncated,
`next_value` is the value of its true final observation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def gae(
    reward_t: jax.Array,  # [T, ...] of the step from t to t + 1
    value_t: jax.Array,  # [T, ...]
    next_value_t: jax.Array,  # [T, ...] of the true next observation
    terminated_t: jax.Array,  # [T, ...]
    truncated_t: jax.Array,  # [T, ...]
    discount: float,
    trace: float,
) -> jax.Array:
    """Generalised advantage estimates: A_t = delta_t + discount * trace * A_{t+1}, cut at episode ends."""
    delta_t = reward_t + discount * jnp.where(terminated_t, 0, next_value_t) - value_t
    keep_t = jnp.where(terminated_t | truncated_t, 0, discount * trace).astype(delta_t.dtype)

    def step(advantage_tp1: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, keep = now
        advantage = delta + keep * advantage_tp1
        return advantage, advantage

    _, advantage_t = jax.lax.scan(step, jnp.zeros_like(delta_t[0]), (delta_t, keep_t), reverse=True, unroll=8)
    return advantage_t
