"""The suite's two axes, every algorithm and every plan, and how to run one with the other."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import motet
from motet.algorithms.batch_ppo import BatchPPO
from motet.algorithms.impala import IMPALA
from motet.engine import run as engine
from motet.engine.assemble import Limits, Programs, Settings
from motet.engine.place import devices_for
from motet.engine.run import Mode, Outcome, gather
from motet.flow.algorithm import Algorithm
from motet.flow.environment import Environment
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.plan.check import check
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import period, traffic
from tests.laws.demand import bytes_of_an_iteration

REPLAY: dict[str, Any] = {
    "num_envs": 8, "train_frequency": 2, "gradient_steps": 3, "batch_size": 16, "buffer_size": 256,
    "learning_starts": 40, "hidden": (16,),
}  # fmt: skip
ALGORITHMS: dict[str, Algorithm] = {
    "ppo": motet.PPO(num_envs=8, num_steps=8, update_epochs=2, num_minibatches=2, hidden=(16,)),
    "ppo-unnormalised": motet.PPO(
        num_envs=8, num_steps=8, update_epochs=2, num_minibatches=2, hidden=(16,), normalize_advantage=False
    ),
    "ppo-scaled": motet.PPO(
        num_envs=8, num_steps=8, update_epochs=2, num_minibatches=2, hidden=(16,), normalize_observation=True,
        normalize_reward=True,
    ),
    "batch_ppo": BatchPPO(num_envs=8, num_steps=8, update_epochs=3, hidden=(16,)),
    "a2c": motet.A2C(num_envs=8, num_steps=5, hidden=(16,)),
    "impala": IMPALA(num_envs=8, num_steps=5, hidden=(16,)),
    "dqn": motet.DQN(**REPLAY, target_period=4, n_step=5),
    "dqn-prioritised": motet.DQN(**REPLAY, target_period=4, prioritised=True, dueling=True, n_step=3),
    "ddpg": motet.DDPG(**REPLAY),
    "td3": motet.TD3(**REPLAY),
    "sac": motet.SAC(**REPLAY, random_hold=3),
}  # fmt: skip
CONTINUOUS = (motet.DDPG, motet.TD3, motet.SAC)
"""These learn Pendulum; all others CartPole."""

PLANS: dict[str, Plan] = {
    "anakin-1": motet.anakin(),
    "anakin-4": motet.anakin(4),
    "multi_learner-2": motet.multi_learner(2),
    "coarse-2": motet.coarse(2),
    "coarse-4": motet.coarse(4),
    "coarse-2-sharded": motet.coarse(2, learners=2),
    "fine-2": motet.fine(2),
    "central-2": motet.central(2),
    "pearl-2": motet.pearl(2, lag=0),
    "pearl-host": motet.pearl(lag=0, replay="host"),
    "pearl-opencl": motet.pearl(lag=0, replay="opencl:0"),
}
CUTS = frozenset(cut for plan in PLANS.values() for cut in plan.cuts())
"""A graph for all of them takes little longer to trace than one for a single plan."""
ITERATIONS = 3
DOUBLE = jnp.result_type(float) == np.float64

PRESETS = ("anakin-1", "anakin-4", "multi_learner-2", "coarse-2", "fine-2", "central-2")
"""One of each; the other plans are further cuts, which PPO stands in for."""
PEARLS = ("pearl-2", "pearl-host", "pearl-opencl")
"""For algorithms with a replay."""
PAIRS = [
    # PPO's advantage statistics need the whole batch, which no collective spans under `central`: `check` refuses it.
    # There, and only there, it goes without them. BatchPPO cannot: its penalty is one of the whole batch too.
    ("ppo-unnormalised" if (name, plan) == ("ppo", "central-2") else name, plan)
    for name in ("ppo", "batch_ppo", "a2c", "impala", "dqn", "ddpg", "td3", "sac")
    for plan in ([plan for plan in PLANS if plan not in PEARLS] if name == "ppo" else PRESETS)
    if (name, plan) != ("batch_ppo", "central-2")
]
PAIRS += [
    *(("dqn", plan) for plan in PEARLS),
    *(("dqn-prioritised", plan) for plan in ("coarse-2", *PEARLS)),
    ("sac", "pearl-2"),
]
if not DOUBLE:
    # In single precision, cutting a batch shows little but that sums are rounded: every plan is run once, and
    # algorithms of each kind; all pairs are in double precision.
    PAIRS = [
        *(("ppo", plan) for plan in ("anakin-1", "anakin-4", "coarse-4", "coarse-2-sharded")),
        ("batch_ppo", "multi_learner-2"),
        ("a2c", "coarse-2"),
        *(("dqn", plan) for plan in ("coarse-2", "fine-2", "central-2")),
        *(("dqn-prioritised", plan) for plan in PEARLS),
    ]


class Silent:
    """Watches nothing but the rows."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def status(self, text: str) -> None: ...

    def rows(self, first: int, rows: np.ndarray) -> None:
        self.seen += list(rows)


def traced(algorithm: Algorithm, plan: Plan, env: Environment | None = None, iterations: int = ITERATIONS) -> Graph:
    """The graph of an algorithm, cut as the plan wants it and with a run of `iterations` in mind."""
    return _traced(algorithm, env or _task(algorithm), frozenset(plan.cuts()), iterations)


def _task(algorithm: Algorithm) -> Environment:
    return motet.make("Pendulum-v1" if isinstance(algorithm, CONTINUOUS) else "CartPole-v1")


@functools.cache
def _traced(algorithm: Algorithm, env: Environment, cuts: frozenset[Any], iterations: int) -> Graph:
    return trace(algorithm, env, iterations=iterations, cuts=tuple(cuts))


def run(
    graph: Graph,
    plan: Plan,
    *,
    iterations: int = ITERATIONS,
    seed: int = 1,
    mode: Mode = "threads",
    delay: Callable[[str], None] | None = None,
    compiled: bool = True,
    timeout: float = 300.0,
    programs: Programs | None = None,
) -> tuple[Outcome, Silent]:
    """Run a plan. What the last few runs compiled for the same graph and fragments is used again."""
    check(graph, plan, jax.device_count())
    watcher, settings = Silent(), Settings(seed, Limits(timeout), compiled)
    programs = _programs(graph, plan) if programs is None else programs
    outcome = engine.run(
        graph, plan, devices_for(plan), watcher, iterations, settings, mode=mode, delay=delay, programs=programs
    )
    return outcome, watcher


_recent: collections.deque[tuple[Graph, Any, Programs]] = collections.deque(maxlen=4)


def _programs(graph: Graph, plan: Plan) -> Programs:
    for known, fragments, programs in _recent:
        if known is graph and fragments == plan.fragments:
            return programs
    _recent.append((graph, plan.fragments, {}))
    return _recent[-1][2]


@functools.cache
def pair(name: str, plan: str) -> tuple[Graph, Outcome, Silent]:
    """The run of one algorithm under one plan."""
    graph = _traced(ALGORITHMS[name], _task(ALGORITHMS[name]), CUTS, ITERATIONS)
    return (graph, *run(graph, PLANS[plan]))


def state(graph: Graph, outcome: Outcome, name: str) -> Any:
    """A variable's last value, with all environments in one piece."""
    return gather(graph, outcome, name)


def owned(graph: Graph, plan: Plan, outcome: Outcome, name: str) -> Any:
    """The last value of a variable of one leaf, as whoever writes it has it: others may hold an older one."""
    home = plan.homes(graph)
    (owner,) = {home[node.name] for node in graph.nodes() if name in node.writes}
    return gather(graph, replace(outcome, variables={owner: outcome.variables[owner]}), name)


def learner(graph: Graph, outcome: Outcome) -> list[np.ndarray]:
    return jax.tree.leaves(state(graph, outcome, "learner"))


def lags(outcome: Outcome) -> dict[str, dict[int, int]]:
    """Link -> how many values were that many rounds old when they were read."""
    return {row.link: dict(row.lags) for row in outcome.links}


def carried(outcome: Outcome) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(link, source, target) -> the messages and bytes that went there in the whole run."""
    return {(row.link, row.source, row.target): (row.messages, row.bytes) for row in outcome.links}


def assert_traffic(graph: Graph, plan: Plan, outcome: Outcome, iterations: int = ITERATIONS) -> None:
    """What went over the links is what the static table says, and what whoever reads a value must be sent."""
    table = traffic(graph, plan, project(graph, plan), iterations)
    predicted = {(row.link, row.source, row.target): (row.messages, row.bytes) for row in table}
    assert carried(outcome) == predicted
    if period(graph) == 1:
        measured = {way: sent for way, (_, sent) in carried(outcome).items() if sent}
        assert measured == {way: each * iterations for way, each in bytes_of_an_iteration(graph, plan).items()}
    assert bool(predicted) == (len(plan.fragments) > 1)


def assert_close(a: Any, b: Any) -> None:
    """Equal up to the order of additions."""
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9 if DOUBLE else 2e-4, atol=1e-11 if DOUBLE else 2e-5)


def assert_differ(a: Any, b: Any) -> None:
    """Different by far more than the order of additions: by a hundred times of what `assert_close` forgives."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    rtol, atol = (1e-7, 1e-9) if DOUBLE else (2e-2, 2e-3)
    apart = [float(np.max(np.abs(x - y) / (atol + rtol * np.abs(y)))) for x, y in pairs if np.size(x)]
    assert max(apart) > 1, f"the largest difference is {max(apart):.3g} of what counts as one"


def assert_identical(a: Any, b: Any) -> None:
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)
