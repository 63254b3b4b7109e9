"""`trace` runs an algorithm's loop once, on abstract values, and records it as a graph.

Afterwards nothing here is needed to run the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from motet.errors import BadOption
from motet.flow.acting import AnyEnvironment
from motet.flow.algorithm import Algorithm, Spec
from motet.flow.environment import check_environment
from motet.flow.graph import WHOLE, Cut, Graph
from motet.flow.loops import Flow
from motet.flow.values import Value


def trace(
    algorithm: Algorithm,
    env: AnyEnvironment,
    *,
    total_timesteps: int = 1_000_000,
    iterations: int | None = None,
    cuts: Iterable[Cut] = (WHOLE,),
) -> Graph:
    """Record `algorithm.loop` on `env`, for a run of `total_timesteps` or of so many `iterations`.

    Cuts that do not divide the environments are left to `check` to report.
    """
    check_environment(env)
    if iterations is not None:
        if iterations < 1:
            raise BadOption(f"iterations must be at least 1, got {iterations}.")
        return _record(algorithm, env, iterations, cuts).finish(iterations)
    counter = _Counter()
    with suppress(_Enough):
        _bind(algorithm, env, 1).loop(counter)  # type: ignore[arg-type]
    steps, prefill = counter.steps, counter.prefill_steps
    while True:
        iterations = count_iterations(algorithm, total_timesteps, steps, prefill)
        flow = _record(algorithm, env, iterations, cuts)
        if (flow.steps, flow.prefill_steps) == (steps, prefill):
            return flow.finish(iterations)
        steps, prefill = flow.steps, flow.prefill_steps  # the loop called something else before its unroll


def _record(algorithm: Algorithm, env: AnyEnvironment, iterations: int, cuts: Iterable[Cut]) -> Flow:
    flow = Flow(_bind(algorithm, env, iterations), env, cuts)
    flow.run()
    return flow


def _bind(algorithm: Algorithm, env: AnyEnvironment, iterations: int) -> Algorithm:
    return algorithm.bind(Spec(env.observation_space, env.action_space, iterations))


def count_iterations(algorithm: Algorithm, total_timesteps: int, steps: int, prefill: int) -> int:
    """How many whole iterations fit into `total_timesteps`, after the prefill."""
    each = steps * algorithm.num_envs
    before = math.ceil(prefill / each) * each
    if total_timesteps < before + each:
        first = f"a prefill of {before:,} steps and " if before else ""
        raise BadOption(
            f"total_timesteps must be at least {before + each:,}, got {total_timesteps:,}: "
            f"{type(algorithm).__name__} needs {first}iterations of {each:,} steps "
            f"({algorithm.num_envs} environments x {steps} steps). Raise total_timesteps, or lower the number of "
            "environments or steps."
        )
    return (total_timesteps - before) // each


class _Enough(Exception):
    """The first unroll was seen."""


class _Counter:
    """Stands in for a flow to learn how long an iteration is, before the loop is traced in earnest.

    Schedules need the number of iterations when the first state is made, and that follows from the loop.
    """

    steps = 1
    prefill_steps = 0

    def prefill(self, steps: int) -> None:
        self.prefill_steps = steps

    def state(self, name: str, init: Any, *, per_environment: bool = False) -> Value:
        return Value(name)

    def unroll(self, act: Any, *, steps: int) -> Any:
        self.steps = steps
        raise _Enough

    def __getattr__(self, name: str) -> Any:
        raise _Enough
