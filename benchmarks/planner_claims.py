"""What motet claims of its planner: how good it is on the grid, how soon it answers, and what its clock is worth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np

import motet
from benchmarks import sleeping
from benchmarks.claims import Claim, Measurement
from benchmarks.host_sides import begin
from benchmarks.planner import ROUNDS, Held, cases, measure
from benchmarks.planner_grid import HELD_OUT, PPO, TASKS
from benchmarks.planner_record import Case, profiled, regret, tau
from motet import planning, scaling
from motet.engine.estimate import estimate
from motet.flow.trace import trace
from motet.plan import catalogue, search
from motet.plan.cost import Book


def grid() -> dict[str, tuple[Case, ...]]:
    """Every task, measured once in this process."""
    if failed := measure(TASKS):
        raise RuntimeError(f"{', '.join(failed)} failed, as is said above; without them nothing is claimed")
    return {task.name: cases(task) for task in TASKS}


def _measurement(value: float, samples: Mapping[str, list[float]], unit: str) -> Measurement:
    versions = {name: metadata.version(name) for name in ("motet", "jax", "jaxlib")}
    return Measurement(value, samples, unit, {"ours": versions})


def _error(settings: Mapping[str, Any]) -> Measurement:
    errors = [case.error for found in grid().values() for case in found]
    return _measurement(float(np.percentile(errors, settings["percentile"])), {"error": errors}, "share")


def _order(settings: Mapping[str, Any]) -> Measurement:
    taus = [tau(found) for found in grid().values()]
    apart = [tau(found, told_apart=True) for found in grid().values()]
    return _measurement(min(taus), {"tau": taus, "of pairs that rounds tell apart": apart}, "Kendall's tau")


def _regret(settings: Mapping[str, Any]) -> Measurement:
    regrets = [regret(found) for found in grid().values()]
    return _measurement(min(regrets), {"of the best": regrets}, "share")


def _profiling(settings: Mapping[str, Any]) -> Measurement:
    took = [profiled(found) for found in grid().values()]
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


def _worst(samples: Mapping[str, list[float]], unit: str) -> Measurement:
    return _measurement(max(map(statistics.median, samples.values())), samples, unit)


def _choosing(settings: Mapping[str, Any]) -> Measurement:
    """Seconds to choose: here, once profiled, and for machines that are described, of which nothing is measured."""
    samples: dict[str, list[float]] = {}
    for task in (task for task in TASKS if task.name in settings["once profiled"]):
        env = motet.make(task.env)
        planning.choose(task.algorithm, env)
        samples[task.name] = [planning.choose(task.algorithm, env).seconds for _ in range(ROUNDS)]
    for name in settings["without a profile"]:
        machine, env = catalogue.find(name), motet.make("CartPole-v1")
        samples[name] = [planning.choose(PPO, env, machine=machine, measure=False).seconds for _ in range(ROUNDS)]
    return _worst(samples, "s")


def _simulating(settings: Mapping[str, Any]) -> Measurement:
    """Seconds to simulate each plan that `motet simulate` draws, on so many devices."""
    count, samples = settings["devices"], dict[str, list[float]]()
    machine = catalogue.find(settings["machine"]).with_devices(count)
    envs, items = 16 * count, 100 * 16 * count
    for algorithm in (
        motet.PPO(num_envs=envs, num_steps=128),
        motet.DQN(num_envs=envs, batch_size=count, buffer_size=items, learning_starts=items // 10),
    ):
        graph = trace(algorithm, motet.make("CartPole-v1"), iterations=1000)
        for name, plan in scaling.plans_for(count, machine.hosts).items():
            start = time.perf_counter()
            if search.sift(graph, machine, [plan]).plans:
                estimate(graph, plan, Book(graph, machine, here=False))
                samples[f"{type(algorithm).__name__}, {name}"] = [time.perf_counter() - start]
    return _worst(samples, "s")


def _sleeping(settings: Mapping[str, Any]) -> Measurement:
    """How far real runs of programs that only sleep are from what the virtual clock foretells, at most."""
    errors = {
        name: [abs(sleeping.error(case, settings["seconds"], settings["iterations"]))]
        for name, case in sleeping.CASES.items()
    }
    return _worst(errors, "share")


GRID = {"tasks": [task.name for task in TASKS], "held out": sorted(HELD_OUT)}
OF_THE_GRID = (
    Claim("planner_error", {**GRID, "percentile": 50}, _error, at_most=0.12),
    Claim("planner_error_90", {**GRID, "percentile": 90}, _error, at_most=0.30),
    Claim("planner_order", GRID, _order, at_least=0.75),
    Claim("planner_regret", GRID, _regret, at_least=0.95),
    Claim("planner_profiling", GRID, _profiling, at_most=15.0, unit=" s"),
)
"""They share what they measure."""
CLAIMS = (
    *OF_THE_GRID,
    Claim("planner_default", {"env": "gymnasium/CartPole-v1", "against": "batched(2)"}, _default, at_least=2.0),
    Claim(
        "planner_choosing",
        {
            "once profiled": ["ppo, CartPole", "ppo, Gymnasium's CartPole", "dqn, CartPole"],
            "without a profile": ["a100-node", "tpu-v4-host"],
            "how": "the slowest of these loops, median of rounds; for machines that are described, PPO on CartPole",
        },
        _choosing,
        at_most=2.0,
        unit=" s",
    ),
    Claim(
        "planner_simulating",
        {
            "machine": "tpu-v3-pod",
            "devices": 2048,
            "how": "the slowest of the plans that `motet simulate` draws, of PPO and of DQN, checked and estimated",
        },
        _simulating,
        at_most=10.0,
        unit=" s",
    ),
    Claim(
        "planner_sleeping",
        {
            "seconds": 0.05,
            "iterations": 31,
            "how": "median iteration of a real run whose programs sleep for 1 to 3 times so many seconds, beside the "
            "virtual clock's; the plan that is furthest off",
        },
        _sleeping,
        at_most=0.03,
    ),
)
