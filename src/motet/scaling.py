"""How plans would do on more and more devices of a machine: on paper, before anybody pays for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from motet.engine.estimate import Estimate, estimate
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.graph import Graph
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.plan import presets, search
from motet.plan.cost import Book, Profile
from motet.plan.machine import Machine
from motet.plan.plan import Plan


@dataclass(frozen=True)
class Point:
    """One plan on so many devices."""

    name: str
    devices: int
    estimate: Estimate


def plans_for(devices: int, hosts: int, lag: int = 1) -> dict[str, Plan]:
    """One plan of each preset, with all devices in use; of those with actors and learners apart, two. Which of them fit
    a loop, `check` knows."""
    found = {"anakin": presets.anakin(devices), "multi_learner": presets.multi_learner(devices)}
    for learners in (3, 1):  # of each device that acts
        actors = devices // (1 + learners)
        if actors >= hosts and actors * (1 + learners) == devices:
            plan = presets.sebulba(actors=actors, threads=2, learners=actors * learners, lag=lag)
            found[f"sebulba, {learners} of {1 + learners} learn"] = plan
    return found | {
        "coarse, one learns": presets.coarse(actors=devices, learners=1, lag=lag),
        "fine, one decides": presets.fine(environments=devices, learners=1),
        "batched, one host steps": presets.batched(workers=0, learners=devices),
        "central": presets.central(workers=devices),
        "pearl, one learns": presets.pearl(actors=devices, lag=lag, prefetch=lag),
    }


def sweep(
    algorithm: Algorithm,
    env: Environment | HostEnvironment,
    machine: Machine,
    counts: Sequence[int],
    *,
    lag: int = 1,
    measured: Profile | None = None,
    plans: Callable[[int, int, int], dict[str, Plan]] = plans_for,
) -> list[Point]:
    """Every plan that fits on every number of devices, and of those that do the same the first one. Environments grow
    with the devices: the algorithm's `num_envs` are those of one device."""
    points = []
    for count in counts:
        smaller = machine.with_devices(count)
        graph = _graph(algorithm, env, count)
        allowed = lag if graph.max_lag is None else min(lag, graph.max_lag)
        book = Book(graph, smaller, measured or Profile(), here=False)
        names = {plan: name for name, plan in plans(count, smaller.hosts, allowed).items()}
        fit = search.sift(graph, smaller, names).plans
        points += [Point(names[plan], count, estimate(graph, plan, book)) for plan in fit]
    fitting = [each for each in points if each.estimate.memory.fits]
    if not fitting:
        why = f", {points[0].estimate.memory.where} has too little memory" if points else ""
        raise BadOption(f"No plan fits {machine.name} with {' or '.join(map(str, counts))} devices{why}.")
    return fitting


def _graph(algorithm: Algorithm, env: Environment | HostEnvironment, count: int) -> Graph:
    """With as many environments as divide by what plans for so many devices cut them into, and as large a replay, with
    batches of as many items, as they fill and are taught by."""
    names = ("num_envs", "buffer_size", "learning_starts", "batch_size")
    many = replace(algorithm, **{name: getattr(algorithm, name) * count for name in names if hasattr(algorithm, name)})  # type: ignore[type-var]
    return trace(many, env, iterations=1000)


def counts_of(text: str) -> list[int]:
    """Read `devices=16..2048`: 16, 32, 64, ... 2048."""
    name, _, bounds = text.partition("=")
    low, _, high = bounds.partition("..")
    if name.strip() != "devices" or not low.strip().isdigit() or not high.strip().isdigit():
        raise BadOption(f"--sweep must look like devices=16..2048, got {text!r}")
    first, last = int(low), int(high)
    if not 0 < first <= last:
        raise BadOption(f"--sweep must go from at least 1 up, got {text!r}")
    counts = [first]
    while counts[-1] * 2 <= last:
        counts.append(counts[-1] * 2)
    return counts


def draw(points: Sequence[Point], title: str, file: Path) -> Path:
    """The curves as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    last = {point.name: point.estimate.steps_per_second for point in points}
    for name, marker in zip(sorted(last, key=last.__getitem__, reverse=True), cycle("osD^vP*X"), strict=False):
        found = [point for point in points if point.name == name]
        rates = [point.estimate.steps_per_second for point in found]
        axes.plot([point.devices for point in found], rates, marker=marker, markersize=5, label=name)
    axes.set(xscale="log", yscale="log", xlabel="devices", ylabel="environment steps/s (modelled)", title=title)
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    axes.set_xticks(counts := sorted({point.devices for point in points}), [f"{count:,}" for count in counts])
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)  # in the order in which curves end
    figure.savefig(file, dpi=150)
    return file
