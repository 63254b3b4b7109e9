"""Gradient descent as most algorithms do it: a state of parameters and optimiser, clipped gradients, falling rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """A learner state that holds nothing else."""

    params: Any
    optimiser: Any


def start(optimiser: optax.GradientTransformation, params: Any) -> Learner:
    return Learner(params, optimiser.init(params))


def descend(optimiser: optax.GradientTransformation, state: Learner, gradients: Any) -> Learner:
    """One step of the optimiser."""
    changes, after = optimiser.update(gradients, state.optimiser, state.params)
    return replace(state, params=optax.apply_updates(state.params, changes), optimiser=after)


def clipped(norm: float | None) -> optax.GradientTransformation:
    """Scale gradients that are longer than `norm` down to it."""
    return optax.identity() if norm is None else optax.clip_by_global_norm(norm)


def falling(rate: float, updates: int, falls: bool) -> optax.ScalarOrSchedule:
    """A rate that goes linearly to 0 over `updates` steps, if it `falls`."""
    if not falls:
        return rate
    line = optax.linear_schedule(rate, 0, min(updates, 2**31 - 1))
    # Of a count, a 32-bit integer, JAX would make single precision where all else is computed in double.
    return lambda count: line(jnp.asarray(count, float))
