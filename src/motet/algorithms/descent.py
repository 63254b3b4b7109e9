"""Gradient descent as most algorithms do it: a state of parameters and optimiser, clipped gradients, falling rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from motet.algorithms.own_code import accept, called, found
from motet.errors import BadOption
from motet.flow.algorithm import OwnCode, Spec

Rate = float | Callable[[Any], Any] | str
"""A step size: a number, a schedule (a function of the number of updates so far), or a schedule's name."""
OptimizerOption = optax.GradientTransformation | Callable[..., optax.GradientTransformation] | str | None
"""An optimiser of optax, a function that makes one, or the name of either; None: the built-in."""

WANTED = "an optax.GradientTransformation, a function that makes one, or a name such as my_nets.py:optimizer"
WANTED_RATE = "a number, a schedule such as optax.cosine_decay_schedule(3e-4, 1000), or its name"

# A policy that was learned does not need them again.
OPTIMIZER = OwnCode(lambda value: accept(value, (optax.GradientTransformation,), WANTED), acts=False)
RATE = OwnCode(lambda value: accept(value, (), WANTED_RATE), acts=False)


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


def chosen(
    given: OptimizerOption, usual: optax.GradientTransformation, spec: Spec, updates: int
) -> optax.GradientTransformation:
    """The optimiser that an option gives, for a run of so many updates; the `usual` one if it gives none."""
    if given is None:
        return usual
    thing = found(given)
    if isinstance(thing, optax.GradientTransformation):
        return thing
    made = called("optimizer", thing, {"spec": spec, "updates": updates}, "spec") if callable(thing) else thing
    if not isinstance(made, optax.GradientTransformation):
        came = f"{given!r} is" if made is thing else f"{getattr(thing, '__qualname__', thing)} gave"
        raise BadOption(f"optimizer must be {WANTED}; {came} {made!r}.")
    return made


def clipped(norm: float | None) -> optax.GradientTransformation:
    """Scale gradients that are longer than `norm` down to it."""
    return optax.identity() if norm is None else optax.clip_by_global_norm(norm)


def steady(rate: Rate) -> optax.ScalarOrSchedule:
    """A rate as it is given: a number, or a schedule."""
    thing = found(rate)
    if isinstance(thing, int | float):
        return thing
    if not callable(thing):
        raise BadOption(f"learning_rate must be {WANTED_RATE}; {rate!r} is {thing!r}.")
    schedule = cast(optax.Schedule, thing)
    shape = jax.eval_shape(lambda count: jnp.asarray(schedule(count)), jax.ShapeDtypeStruct((), jnp.int32)).shape
    if shape != ():
        raise BadOption(f"learning_rate must give one number for an update's number, but gives an array of {shape}.")
    return schedule


def falling(rate: Rate, updates: int, falls: bool) -> optax.ScalarOrSchedule:
    """A rate that goes linearly to 0 over `updates` steps, if it `falls`; a schedule goes its own way."""
    given = steady(rate)
    if not falls or callable(given):
        return given
    line = optax.linear_schedule(given, 0, min(updates, 2**31 - 1))
    # Of a count, a 32-bit integer, JAX would make single precision where all else is computed in double.
    return lambda count: line(jnp.asarray(count, float))
