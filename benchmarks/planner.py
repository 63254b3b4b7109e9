"""How good the planner is: what it foretells of a grid of runs beside what comes, and whether it chooses the best.

What is foretold comes from a profile of all candidates, which is made in turns with the runs: a machine that is shared
with others may be half as fast a minute later, and that is not what is asked here. What is chosen is what `motet train`
would choose that has never seen the loop, in its 15 seconds, with nothing compiled before; what these foretell is kept
beside it.

`python -m benchmarks.planner [TASK ...]` measures the grid, or some tasks of it. After each task it keeps what was
measured in benchmarks/results/planner.json, and writes benchmarks/results/planner.md and the block of docs/planner.md
from that, so that tasks may be measured one at a time. Ends with 1 if a task failed.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

import jax
from jax.experimental.compilation_cache import compilation_cache

import motet
from benchmarks.host_sides import Gate, begin
from benchmarks.others import Others
from benchmarks.planner_grid import TASKS, Task
from benchmarks.planner_record import Case, in_order, keep, kept, record, write
from motet import planning
from motet.engine.estimate import estimate
from motet.engine.place import devices_for
from motet.engine.run import run
from motet.flow.trace import trace
from motet.plan.cost import Book
from motet.plan.plan import Plan

SECONDS = 1.5
"""About as long as each sample of a run takes."""
LEAST = 5
"""Iterations that a sample has at least: when it ends, nobody acts while the last rollout is learnt."""
ROUNDS, RUN_OFF = 7, 9
PIECE = 0.15
"""Seconds for each plan that is profiled, in each round."""


@dataclass(frozen=True)
class Ran:
    """One measured run."""

    speed: float
    others: float
    """Cores that other processes used meanwhile."""


class Held:
    """A run that goes on when it is asked to and waits meanwhile, past its compilation."""

    def __init__(self, task: Task, plan: Plan):
        graph = trace(task.algorithm, motet.make(task.env), total_timesteps=1_000_000_000, cuts=plan.cuts())
        self.steps, self.gate = graph.steps_per_iteration, Gate(2)
        go = functools.partial(run, graph, plan, devices_for(plan), self.gate, graph.iterations, delay=self.gate.wait)
        threading.Thread(target=self.gate.hold, args=(go,), daemon=True).start()
        self.gate.sample()
        start = time.perf_counter()
        self.gate.sample()
        each = (time.perf_counter() - start) / self.gate.iterations
        self.iterations = self.gate.iterations = max(LEAST, int(SECONDS / each))

    def sample(self) -> Ran:
        company, start = Others(), time.perf_counter()
        self.gate.sample()
        took = time.perf_counter() - start
        return Ran(self.iterations * self.steps / took, company.cores())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.gate.close()


@functools.cache
def cases(task: Task) -> tuple[Case, ...]:
    """Chosen first; then profiled and measured in turns."""
    env = motet.make(task.env)
    with nothing_compiled():
        began = time.perf_counter()
        choice = planning.choose(task.algorithm, env, lag=1, again=True)
        took = time.perf_counter() - began - choice.seconds
    chosen = choice.spelled(choice.plan)
    print(f"{task.name}: {took:.1f} s to profile, {choice.seconds:.1f} to choose {chosen}", flush=True)
    graph, machine, plans = choice.graph, choice.book.machine, dict(task.plans)
    best = next((name for name, plan in plans.items() if _same(plan, choice.plan)), chosen)
    plans.setdefault(best, choice.plan)
    samples: dict[str, list[Ran]] = {name: [] for name in plans}
    with ExitStack() as stack:
        begin()
        every = planning.candidates(graph, machine, planning.permitted(graph, machine, 1)).plans
        profiling = stack.enter_context(planning.profiling(task.algorithm, env, graph, machine, every))
        profiling.compile(math.inf)
        profiling.warm_up()
        runs = {name: stack.enter_context(Held(task, plan)) for name, plan in plans.items()}
        for _ in range(ROUNDS):
            profiling.round(PIECE)
            for name, held in runs.items():
                samples[name].append(held.sample())
        profile = profiling.profile()
        speeds = {name: statistics.median(each.speed for each in found) for name, found in samples.items()}
        share = of_the_best(runs[best], runs[max(speeds, key=speeds.__getitem__)])
    book = Book(graph, machine, profile)
    return tuple(
        Case(
            task.name,
            name,
            estimate(graph, plans[name], book).steps_per_second,
            speeds[name],
            name == best,
            max(each.others for each in found),
            share if name == best else 0.0,
            tuple(each.speed for each in found),
            took if name == best else 0.0,
            estimate(graph, plans[name], choice.book).steps_per_second,
            os.cpu_count() or 1,
        )
        for name, found in samples.items()
    )


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """As on a machine where nothing was compiled before."""
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()
        try:
            yield
        finally:
            jax.config.update("jax_compilation_cache_dir", before)
            compilation_cache.reset_cache()


def of_the_best(chosen: Held, fastest: Held) -> float:
    """What share of the fastest plan's speed the chosen one has, measured once more, in turns: of several that are
    about as fast, the one that is ahead owes some of it to luck."""
    if chosen is fastest:
        return 1.0
    return min(1.0, statistics.median(chosen.sample().speed / fastest.sample().speed for _ in range(RUN_OFF)))


def _same(one: Plan, other: Plan) -> bool:
    return one.fragments == other.fragments and dict(one.links) == dict(other.links)


def measure(tasks: Sequence[Task]) -> list[str]:
    """Measure tasks and keep what came -> those that failed. What was measured of others is kept as it is."""
    failed = []
    for task in tasks:
        try:
            found = {**kept(), task.name: list(cases(task))}
        except Exception:  # whatever a run raises: the other tasks are still worth measuring
            traceback.print_exc()
            failed.append(task.name)
            continue
        keep(found)
        write(found)
    return failed


def main(names: Sequence[str]) -> int:
    known = [task.name for task in TASKS]
    if unknown := [name for name in names if name not in known]:
        print(f"no task is called {', '.join(unknown)}; there are\n" + "\n".join(known), file=sys.stderr)
        return 2
    failed = measure([task for task in TASKS if not names or task.name in names])
    print(record(in_order(kept())))
    for name in failed:
        print(f"{name} failed; python -m benchmarks.planner {name!r} measures it again", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
