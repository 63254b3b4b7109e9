"""Runs whose programs only sleep, and how long they take beside what the virtual clock foretells.

Sleeping needs no core and takes as long as it is told to: what a real run takes longer is what the clock leaves out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import motet
from motet.engine import threads
from motet.engine.assemble import Assembly, Settings, assemble
from motet.engine.clock import Use
from motet.engine.rehearse import workers_of
from motet.engine.requests import Compute, Consult, Request
from motet.engine.virtual import Channel, simulate
from motet.engine.worker import Worker
from motet.flow.algorithm import Algorithm
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.plan.plan import Plan

LENGTHS = {"actors": 2, "learner": 3, "environments": 1, "workers": 2, "server": 1, "replay": 1}
"""How long each call of a fragment sleeps, beside others."""
WARM = 3
"""Iterations before runs are steady."""


@dataclass(frozen=True)
class Case:
    """A loop and a plan for it."""

    algorithm: Algorithm
    plan: Plan

    def traced(self) -> Graph:
        return trace(self.algorithm, motet.make("CartPole-v1"), iterations=1000, cuts=self.plan.cuts())


A2C = motet.A2C(num_envs=8, num_steps=5, hidden=(16,))
DQN = motet.DQN(
    num_envs=8, train_frequency=2, gradient_steps=3, batch_size=16, buffer_size=256, learning_starts=40, hidden=(16,)
)
CASES = {
    "a2c, coarse(2)": Case(A2C, motet.coarse(2)),
    "a2c, coarse(2, lag=1)": Case(A2C, motet.coarse(2, lag=1)),
    "a2c, central(2)": Case(A2C, motet.central(2)),
    "dqn, fine(2)": Case(DQN, motet.fine(2)),
    "dqn, pearl(lag=1, prefetch=1)": Case(DQN, motet.pearl(lag=1, prefetch=1)),
}


class Sleep:
    """A program that sleeps, and leaves zeros."""

    def __init__(self, graph: Graph, call: Any, parts: int, seconds: float):
        self.call, self.seconds = call, seconds
        self.zeros = {
            name: tuple(
                jax.numpy.zeros(aval.shape, aval.dtype) if not jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)
                else jax.random.split(jax.random.key(0), aval.shape)
                for aval in graph.variables[name].local(parts)
            )
            for name in call.writes
        }  # fmt: skip

    def __call__(self, values: Any, root: Any, path: Any) -> Any:
        time.sleep(self.seconds if len(path) else 0.0)
        return self.zeros


@dataclass(frozen=True)
class Naps:
    """What the virtual clock is told: how long each fragment's calls sleep, and nothing else."""

    seconds: Mapping[str, float]

    def request(self, worker: Worker, request: Request) -> Sequence[Use]:
        return (Use(self.seconds[worker.fragment]),) if isinstance(request, (Compute, Consult)) else ()

    def message(self, channel: Channel) -> Sequence[Use]:
        return ()


def asleep(graph: Graph, plan: Plan, seconds: Mapping[str, float]) -> Assembly:
    """A real run, all of whose programs sleep."""
    assembly = assemble(graph, plan, {"cpu": jax.devices()}, Settings())
    for each in assembly.performers:
        parts, nap = plan.fragments[each.worker.fragment].cut.parts, seconds[each.worker.fragment]
        schedule = each.worker.schedule
        for call in calls(schedule.start):
            each.programs[id(call)] = Sleep(graph, call, parts, 0.0)
        for call in calls(schedule.body):
            each.programs[id(call)] = Sleep(graph, call, parts, nap)
    return assembly


def calls(operations: Sequence[Any]) -> list[Any]:
    found = []
    for each in operations:
        found += calls(each.body) if hasattr(each, "count") else [each] if hasattr(each, "donated") else []
    return found


def error(case: Case, unit: float, iterations: int) -> float:
    """How much longer than foretold the median iteration is, as a share; less than 0 if it is shorter."""
    seconds = {name: length * unit for name, length in LENGTHS.items()}
    graph = case.traced()
    return measured(graph, case.plan, seconds, iterations) / foretold(graph, case.plan, seconds, iterations) - 1


def foretold(graph: Graph, plan: Plan, seconds: Mapping[str, float], iterations: int) -> float:
    """Seconds of the median iteration of the last fragment."""
    found = simulate(*workers_of(graph, plan), iterations, Naps(seconds))
    return _median(found.finished(list(plan.fragments)[-1]))


def measured(graph: Graph, plan: Plan, seconds: Mapping[str, float], iterations: int) -> float:
    """Seconds of the median iteration of the last fragment."""
    assembly, ends = asleep(graph, plan, seconds), list[float]()
    last = assembly.performers[-1]

    def done(performer: Any, done: Any) -> None:
        if performer is last and done.iteration:
            ends.append(time.perf_counter())

    for each in assembly.performers:
        each.on_done = done
    threads.drive(assembly, iterations)
    assembly.close()
    return _median(ends)


def _median(ends: Sequence[float]) -> float:
    return statistics.median(np.diff(ends)[WARM:].tolist())
