"""How good the planner is: what it foretells of a grid of runs beside what comes, and whether it chooses the best.

What is foretold comes from a profile of all candidates, which is made in turns with the runs: a machine that is shared
with others may be half as fast a minute later, and that is not what is asked here. What is chosen is what `motet train`
would choose that has never seen the loop, in its 15 seconds, with nothing compiled before.

`python -m benchmarks.planner [TASK ...]` measures the grid, or some tasks of it, keeps what was measured in
benchmarks/results/planner.json and writes benchmarks/results/planner.md from it: the tasks may be measured one at a
time. Cases that are held out were not looked at while the model was made: whoever changes it tries it on the others.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import gymnasium
import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import motet
from benchmarks.claims import Claim, Measurement
from benchmarks.host_sides import Gate, begin
from benchmarks.others import Others
from motet import planning
from motet.engine.estimate import estimate
from motet.engine.place import devices_for
from motet.engine.run import run
from motet.flow.trace import trace
from motet.plan import catalogue
from motet.plan.cost import Book
from motet.plan.plan import Plan

FILE = Path(__file__).parent / "results" / "planner.md"
KEPT = FILE.with_suffix(".json")
SECONDS = 1.5
"""About as long as each sample of a run takes."""
LEAST = 5
"""Iterations that a sample has at least: when it ends, nobody acts while the last rollout is learnt."""
ROUNDS, RUN_OFF = 7, 9
PIECE = 0.15
"""Seconds for each plan that is profiled, in each round."""


class Slow(gymnasium.Env):
    """Half a millisecond of work for a step, as simulators of physics have."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 200
        return np.zeros(8, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.perf_counter() + 0.5e-3
        while time.perf_counter() < end:
            pass
        self.left -= 1
        return np.zeros(8, np.float32), 1.0, self.left == 0, False, {}


@dataclass(frozen=True)
class Task:
    """An algorithm on an environment, and plans for it."""

    name: str
    algorithm: motet.Algorithm
    env: Any
    plans: Mapping[str, Plan]
    held_out: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


PPO = motet.PPO(num_envs=64, num_steps=128, update_epochs=4, num_minibatches=4, hidden=(64, 64))
IMPALA = motet.IMPALA(num_envs=64, num_steps=20)
HOSTED = {
    "multi_learner(1)": motet.multi_learner(1),
    "multi_learner(1, workers=2)": motet.multi_learner(1, workers=2),
    "batched(2)": motet.batched(2),
    "sebulba(threads=1)": motet.sebulba(threads=1),
    "sebulba(threads=2)": motet.sebulba(threads=2),
    "coarse(2)": motet.coarse(2),
    "fine(2)": motet.fine(2),
}
COMPILED = {
    "anakin()": motet.anakin(),
    "coarse(1, lag=1)": motet.coarse(1, lag=1),
    "coarse(2)": motet.coarse(2),
    "coarse(2, lag=1)": motet.coarse(2, lag=1),
    "fine(2)": motet.fine(2),
}
REPLAY = {
    "anakin()": motet.anakin(),
    "coarse(1, lag=1)": motet.coarse(1, lag=1),
    "central(2)": motet.central(2),
    "pearl(lag=1)": motet.pearl(lag=1),
    "pearl(lag=1, prefetch=1)": motet.pearl(lag=1, prefetch=1),
}
HOSTED_REPLAY = {
    "multi_learner(1)": motet.multi_learner(1),
    "batched(2)": motet.batched(2),
    "sebulba(threads=1)": motet.sebulba(threads=1),
    "central(2)": motet.central(2),
    "pearl(lag=1)": motet.pearl(lag=1),
}
TASKS = (
    Task("ppo, CartPole", PPO, "CartPole-v1", COMPILED),
    Task("ppo, Gymnasium's CartPole", PPO, "gymnasium/CartPole-v1", HOSTED),
    Task("ppo, EnvPool's CartPole", PPO, "envpool/CartPole-v1", HOSTED),
    Task("ppo, a slow environment", motet.PPO(num_envs=8, num_steps=32, hidden=(64, 64)), Slow, HOSTED),
    Task("impala, CartPole", IMPALA, "CartPole-v1", COMPILED, held_out=True),
    Task("impala, Gymnasium's CartPole", IMPALA, "gymnasium/CartPole-v1", HOSTED),
    Task("dqn, CartPole", motet.DQN(num_envs=8), "CartPole-v1", REPLAY),
    Task("dqn, Gymnasium's CartPole", motet.DQN(num_envs=8), "gymnasium/CartPole-v1", HOSTED_REPLAY, held_out=True),
    Task("sac, Pendulum", motet.SAC(num_envs=8), "Pendulum-v1", REPLAY),
    Task("td3, Pendulum", motet.TD3(num_envs=8, hidden=(64, 64)), "Pendulum-v1", REPLAY, held_out=True),
    Task("a2c, Gymnasium's Acrobot", motet.A2C(num_envs=16), "gymnasium/Acrobot-v1", HOSTED),
    Task("ppo, Gymnasium's Pendulum", motet.PPO(num_envs=16), "gymnasium/Pendulum-v1", HOSTED, held_out=True),
)


@dataclass(frozen=True)
class Case:
    """One plan of a task."""

    task: str
    plan: str
    held_out: bool
    predicted: float
    """Environment steps a second."""
    measured: float
    chosen: bool
    others: float = 0.0
    """Cores that other processes used meanwhile."""
    of_best: float = 0.0
    """Of the chosen plan: what share of the fastest one's speed it has."""
    rounds: tuple[float, ...] = ()
    """The speed of each round; `measured` is their median."""
    profiled: float = 0.0
    """Of the chosen plan: how many seconds it took to measure what it was chosen by, with nothing compiled before."""

    @property
    def error(self) -> float:
        return abs(self.predicted / self.measured - 1)


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
            task.held_out,
            estimate(graph, plans[name], book).steps_per_second,
            speeds[name],
            name == best,
            max(each.others for each in found),
            share if name == best else 0.0,
            tuple(each.speed for each in found),
            took if name == best else 0.0,
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


def tau(found: Sequence[Case], told_apart: bool = False) -> float:
    """Kendall's: how many more pairs are in the same order than in the other, as a share of all; or of those that are
    `told_apart`, since nobody can foretell which of two plans is ahead that take turns in it."""
    both = [pair for pair in itertools.combinations(found, 2) if not told_apart or _told_apart(*pair)]
    agree = sum(np.sign((a.predicted - b.predicted) * (a.measured - b.measured)) for a, b in both)
    return float(agree / len(both)) if both else 1.0


def _told_apart(one: Case, other: Case) -> bool:
    """Whether one plan was ahead in all rounds but one at most."""
    ahead = sum(a > b for a, b in zip(one.rounds, other.rounds, strict=True))
    return min(ahead, len(one.rounds) - ahead) <= 1


def regret(found: Sequence[Case]) -> float:
    """What share of the best plan's speed the chosen one has."""
    return next(case.of_best for case in found if case.chosen)


def profiled(found: Sequence[Case]) -> float:
    """Seconds of measuring before the first choice."""
    return next(case.profiled for case in found if case.chosen)


def table(found: Sequence[Case]) -> str:
    lines = [
        f"{len(found)} cases, {sum(case.held_out for case in found)} of them held out, on {os.cpu_count()} cores. "
        f"Error of predicted steps/s: {_spread([case.error for case in found])}; of those held out: "
        f"{_spread([case.error for case in found if case.held_out])}. `others` are cores that other processes used, "
        "environments in processes of their own included. The plan that a first `motet train --max-lag 1` would choose "
        "is in bold.",
        "",
        "| task | plan | predicted | measured | error | others |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for case in found:
        name = f"**{case.plan}**" if case.chosen else case.plan
        held = " (held out)" if case.held_out else ""
        numbers = f"{case.predicted:,.0f} | {case.measured:,.0f} | {case.predicted / case.measured - 1:+.0%}"
        lines.append(f"| {case.task}{held} | {name} | {numbers} | {case.others:.2f} |")
    for task in dict.fromkeys(case.task for case in found):
        mine = [case for case in found if case.task == task]
        order = f"Kendall's tau {tau(mine):.2f} ({tau(mine, told_apart=True):.2f} of the pairs that rounds tell apart)"
        chosen = f"the chosen plan has {regret(mine):.2f} of the best, after {profiled(mine):.1f} s of measuring"
        lines += ["", f"{task}: {order}; {chosen}."]
    return "\n".join(lines) + "\n"


def _spread(errors: Sequence[float]) -> str:
    if not errors:
        return "none"
    median, most = statistics.median(errors), float(np.percentile(errors, 90))
    return f"median {median:.0%}, 90th percentile {most:.0%}, worst {max(errors):.0%}"


def grid() -> list[Case]:
    main([])
    return [case for found in _kept().values() for case in found]


def _measurement(value: float, samples: Mapping[str, list[float]], unit: str) -> Measurement:
    versions = {name: metadata.version(name) for name in ("motet", "jax", "jaxlib")}
    return Measurement(value, samples, unit, {"ours": versions})


def _error(settings: Mapping[str, Any]) -> Measurement:
    found = grid()
    errors = [case.error for case in found]
    return _measurement(float(np.percentile(errors, settings["percentile"])), {"error": errors}, "share")


def _order(settings: Mapping[str, Any]) -> Measurement:
    taus = [tau(cases(task)) for task in TASKS]
    apart = [tau(cases(task), told_apart=True) for task in TASKS]
    return _measurement(min(taus), {"tau": taus, "of pairs that rounds tell apart": apart}, "Kendall's tau")


def _regret(settings: Mapping[str, Any]) -> Measurement:
    regrets = [regret(cases(task)) for task in TASKS]
    return _measurement(min(regrets), {"of the best": regrets}, "share")


def _profiling(settings: Mapping[str, Any]) -> Measurement:
    took = [profiled(cases(task)) for task in TASKS]
    return _measurement(max(took), {"profiling": took}, "s")


def _default(settings: Mapping[str, Any]) -> Measurement:
    """What is chosen without a plan, beside `batched(2)`."""
    task = next(each for each in TASKS if each.name == "ppo, Gymnasium's CartPole")
    choice = planning.choose(task.algorithm, motet.make(task.env))
    begin()
    with Held(task, choice.plan) as mine, Held(task, motet.batched(2)) as its:
        ours, theirs = zip(*((mine.sample().speed, its.sample().speed) for _ in range(ROUNDS)), strict=True)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return _measurement(ratio, {"chosen": list(ours), "batched(2)": list(theirs)}, "environment steps/s")


def _choosing(settings: Mapping[str, Any]) -> Measurement:
    """Seconds to choose, once profiled."""
    env = motet.make("gymnasium/CartPole-v1")
    planning.choose(PPO, env)
    took = [planning.choose(PPO, env).seconds for _ in range(ROUNDS)]
    return _measurement(statistics.median(took), {"choosing": took}, "s")


def _simulating(settings: Mapping[str, Any]) -> Measurement:
    """Seconds to simulate one plan on 2,048 devices."""
    graph = trace(motet.PPO(num_envs=2048 * 16, num_steps=128), motet.make("CartPole-v1"), iterations=10)
    book, took = Book(graph, catalogue.find("tpu-v3-pod")), []
    for plan in (motet.anakin(2048), motet.sebulba(actors=512, threads=2, learners=512)):
        start = time.perf_counter()
        estimate(graph, plan, book)
        took.append(time.perf_counter() - start)
    return _measurement(max(took), {"simulating": took}, "s")


GRID = {"tasks": [task.name for task in TASKS], "held out": [task.name for task in TASKS if task.held_out]}
CLAIMS = (
    Claim("planner_error", {**GRID, "percentile": 50}, _error, at_most=0.12),
    Claim("planner_error_90", {**GRID, "percentile": 90}, _error, at_most=0.30),
    Claim("planner_order", GRID, _order, at_least=0.75),
    Claim("planner_regret", GRID, _regret, at_least=0.95),
    Claim("planner_profiling", GRID, _profiling, at_most=15.0, unit=" s"),
    Claim("planner_default", {"env": "gymnasium/CartPole-v1", "against": "batched(2)"}, _default, at_least=2.0),
    Claim("planner_choosing", {"once": "profiled"}, _choosing, at_most=2.0, unit=" s"),
    Claim("planner_simulating", {"devices": 2048}, _simulating, at_most=10.0, unit=" s"),
)


def main(names: Sequence[str]) -> int:
    kept = _kept()
    for task in TASKS:
        if not names or task.name in names:
            kept[task.name] = list(cases(task))
            KEPT.write_text(
                json.dumps({name: [asdict(case) for case in found] for name, found in kept.items()}, indent=1)
            )
    found = [case for task in TASKS for case in kept.get(task.name, ())]
    print(table(found))
    FILE.write_text(table(found))
    return 0


def _kept() -> dict[str, list[Case]]:
    """What was measured before, by task."""
    if not KEPT.exists():
        return {}
    return {name: [Case(**case) for case in found] for name, found in json.loads(KEPT.read_text()).items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
