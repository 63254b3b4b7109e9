"""`check_algorithm`: run an algorithm whole and cut, and say which method broke which rule of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from motet import algorithms, envs
from motet.engine import run as engine
from motet.engine.assemble import Settings
from motet.engine.conditions import conditions
from motet.engine.place import devices_for
from motet.errors import BadAlgorithm, BadOption, MotetError
from motet.flow.algorithm import Algorithm
from motet.flow.calls import OWN_NAMES
from motet.flow.environment import Environment
from motet.flow.graph import Cut, Graph
from motet.flow.host import HostEnvironment
from motet.plan import presets
from motet.plan.check import violations
from motet.plan.plan import Plan
from motet.plan.project import Ownership
from motet.verify.pieces import REPLICAS, TWO_SHARDS, Difference, PieceRunner, distance
from motet.verify.precision import looser, traced
from motet.verify.report import SLIGHT, AlgorithmReport, PlanOutcome
from motet.verify.rules import Broken, broken
from motet.verify.sequential import Leaves, NodeCall, Sequential

PLANS: dict[str, Plan] = {
    "anakin(2)": presets.anakin(2),
    "coarse(2)": presets.coarse(2),
    "fine(2)": presets.fine(2),
    "central(2)": presets.central(2),
    "pearl(2, lag=0)": presets.pearl(2, lag=0),
}
"""One of each kind of cut, without lag."""
ON_HOSTS = {"anakin(2)": ("multi_learner(2)", presets.multi_learner(2))}
"""What takes the place of a plan where environments are not written in JAX: the same cut, not as one program."""
WORDS: dict[Cut, str] = {REPLICAS: "two pieces", TWO_SHARDS: "two shards"}
AUTHORS = ("act", "call", "apply")
"""Kinds of nodes that call an author's methods,"""
OURS = OWN_NAMES - {"act", "apply"}
"""if they are not called as motet's own."""


def check_algorithm(
    algorithm: Algorithm | str,
    env: Environment | HostEnvironment | str | Callable[[], Any],
    *,
    plans: Mapping[str, Plan] | None = None,
    iterations: int = 4,
    seed: int = 0,
) -> AlgorithmReport:
    """Run `algorithm` on `env` whole and under every kind of cut, and compare, in double precision.

    Every method is called with the whole batch and with pieces of it: the first that gives something else is named,
    with the rule it breaks. Then `plans` are run, one of each kind if there are none, and their states compared; those
    that need more devices than there are say so (see `motet.virtual_devices`).
    """
    algorithm = algorithms.find(algorithm)() if isinstance(algorithm, str) else algorithm
    if not isinstance(algorithm, Algorithm):
        raise BadOption(f"algorithm must be a name such as 'ppo' or one such as motet.PPO(), got {algorithm!r}.")
    if iterations < 1:
        raise BadOption(f"iterations must be at least 1, got {iterations}.")
    task: Any = env if isinstance(env, (Environment, HostEnvironment)) else envs.make(env)
    title = (type(algorithm).__name__, task.name, iterations)
    chosen = dict(plans) if plans is not None else _usual(isinstance(task, HostEnvironment))
    cuts = (REPLICAS, TWO_SHARDS, *(cut for plan in chosen.values() for cut in plan.cuts()))
    with conditions(), jax.enable_x64(True):
        try:
            graph = traced(algorithm, task, iterations, cuts)
        except BadAlgorithm as error:
            return AlgorithmReport(*title, refused=str(error))
        listener = Listener(PieceRunner(graph))
        states = Sequential(graph, seed, listener)(iterations)
        outcomes = [
            _outcome(graph, name, plan, seed, iterations, states)
            for name, plan in chosen.items()
            if plans is not None or _concerns(graph, plan)
        ]
    return AlgorithmReport(*title, listener.broken(), tuple(listener.calls), tuple(outcomes))


@dataclass
class Listener:
    """Looks at calls of the whole run, and runs them in pieces."""

    pieces: PieceRunner
    calls: Counter[str] = field(default_factory=Counter)
    found: dict[str, Broken] = field(default_factory=dict)

    def __call__(self, call: NodeCall) -> None:
        node = call.node
        if node.kind not in AUTHORS or node.site != node.name or node.name.rstrip("_0123456789") in OURS:
            return
        cuts = [cut for cut in WORDS if self.pieces.can(node, cut)]
        if not cuts:
            return
        number = self.calls[node.name]
        self.calls[node.name] += 1
        if number & (number - 1) or node.name in self.found:  # calls 0, 1, 2, 4, 8 ... are enough to look at
            return
        for cut in cuts:
            differences = self.pieces.differences(call, cut)
            if differences:
                self.found[node.name] = broken(node, WORDS[cut], differences)
                return

    def broken(self) -> tuple[Broken, ...]:
        """In the order of the loop: what comes first may be why others differ."""
        return tuple(self.found[name] for name in self.calls if name in self.found)


def _usual(on_host: bool) -> dict[str, Plan]:
    return dict(ON_HOSTS.get(name, (name, plan)) if on_host else (name, plan) for name, plan in PLANS.items())


def _concerns(graph: Graph, plan: Plan) -> bool:
    """Whether a plan has no part for a replay, or there is one."""
    return bool(graph.roles.replay) or not any("remember" in each.nodes for each in plan.fragments.values())


def _outcome(
    graph: Graph, name: str, plan: Plan, seed: int, iterations: int, states: Mapping[str, Leaves]
) -> PlanOutcome:
    """Run a plan, and compare the states it ends with."""
    devices = devices_for(plan)
    refused = violations(graph, plan, {platform: len(found) for platform, found in devices.items()})
    if refused:
        return PlanOutcome(name, tuple(refused))
    try:
        # In one thread: double precision is switched on in this one.
        outcome = engine.run(graph, plan, devices, _Deaf(), iterations, Settings(seed), mode="serial")
    except MotetError as error:
        return PlanOutcome(name, (str(error),))
    owner, held = Ownership(graph, plan).owner, outcome.variables
    found = [
        difference
        for var in _states(graph)
        for difference in _differences(graph, var, states[var], [each[var] for each in held[owner[var]]])
    ]
    worst = max(found, key=lambda each: each.largest / each.scale, default=None)
    return PlanOutcome(name, (), worst, SLIGHT * max(map(looser, graph.nodes())))


def _states(graph: Graph) -> list[str]:
    """What an algorithm learns: the learner state and states of its author's own."""
    made = {var for node in graph.nodes() if node.kind == "init" for var in node.writes}
    read = {var for node in graph.nodes() for var in node.reads}
    theirs = ("replay", "priorities", "env", "memory")
    return sorted(var for var in (made & read) - set(graph.views) if var not in theirs and "." not in var)


def _differences(graph: Graph, var: str, whole: Leaves, pieces: list[Leaves]) -> Iterator[Difference]:
    known = graph.variables[var]
    for place, (path, axis) in enumerate(zip(known.paths(), known.axes, strict=True)):
        mine = [piece[place] for piece in pieces]
        joined = mine[0] if axis is None else np.concatenate([np.asarray(each) for each in mine], axis)
        largest, scale = distance(whole[place], joined)
        yield Difference(path, axis is not None, largest, scale or 1.0)


class _Deaf:
    """Wants to know nothing of a run."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: np.ndarray) -> None: ...
