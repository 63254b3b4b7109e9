"""Broken environments under several plans: what must happen, how soon, and that nothing is left behind."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.envs import staff, thread
from motet.flow.host import Opening
from tests.hardening.broken import Broken
from tests.hardening.left import nothing_left


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sum:
    params: jax.Array
    total: jax.Array


@dataclass(frozen=True, kw_only=True)
class Adds(motet.Algorithm):
    """Learns nothing and compiles quickly; adds up the rewards it was given."""

    max_lag = None
    num_envs: int = 4

    def init(self, key: jax.Array) -> Sum:
        return Sum(jnp.zeros(()), jnp.zeros(()))

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32))

    def measure(self, params: Any, rollout: Any) -> Any:
        return jnp.mean(jnp.where(rollout.valid, rollout.reward, 0.0))

    def apply(self, state: Sum, mean: jax.Array) -> Sum:
        return Sum(state.params, state.total + mean * 12)

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.apply, flow.call(self.measure, flow.unroll(self.act, steps=3)))


PLANS = {
    "batched(workers=2)": motet.batched(workers=2),
    "batched(workers=0)": motet.batched(workers=0),
    "multi_learner(1)": motet.multi_learner(1),
    "coarse(2)": motet.coarse(2),
    "fine(2)": motet.fine(2),
    "sebulba(workers=1)": motet.sebulba(threads=2, workers=1),
}
HERE = [name for name, plan in PLANS.items() if not any(part.workers for part in plan.fragments.values())]
WORKERS = [name for name in PLANS if name not in HERE]
ALWAYS = {"batched(workers=2)", "multi_learner(1)", "coarse(2)", "pool(0)", "pool(2)"}
RARELY = (pytest.mark.attack,)
POOLS = ["pool(0)", "pool(2)"]
"""No plan at all: the environments in a pool of no or two workers, stepped by the test."""

TRAINS = ""
FAILED, BAD, LATE = motet.EnvironmentFailed, motet.BadEnvironment, motet.EnvironmentTimeout
STEP = "Environment {n} (Broken) raised in step 5 of its episode: "
VALUE = "Environment {n} (Broken), in step 5 of its episode: "


def rows(how: str, kind: Any, words: str, *plans: str) -> list[Any]:
    """The same thing under several plans; some of them only in `make attack`."""
    return [
        pytest.param(how, plan, kind, words, id=f"{how or 'sound'}-{plan}", marks=() if plan in ALWAYS else RARELY)
        for plan in plans
    ]


RAISED = {
    "raise": "RuntimeError: no battery",
    "exit 0": "SystemExit: 0",
    "exit 5": "SystemExit: 5",
    "odd": "Odd: odd",
    "nasty": "Nasty: (its own message cannot be shown: str() raised RuntimeError)",
    "generator exit": "GeneratorExit",
}
VALUES = {
    "nan": "the observation should be finite, but holds nan at [1]",
    "shape": "the observation should have shape (2,), but has (3,)",
    "text": "the observation should have dtype float32, but has <U1",
    "nothing": "the observation should have dtype float32, but has object (NoneType)",
    "endless reward": "the reward should be a finite number, but is inf",
    "no reward": "the reward should be a finite number, but is None",
    "many rewards": "the reward should be a finite number, but is [1, 2]",
    "no flag": "terminated should be a bool, but is 1 (int)",
}
TABLE = [
    *rows("", None, TRAINS, *PLANS, *POOLS),
    *(row for how, words in RAISED.items() for row in rows(how, FAILED, STEP + words, *PLANS, *POOLS)),
    *(row for how, words in VALUES.items() for row in rows(how, BAD, VALUE + words, *POOLS, "coarse(2)")),
    *rows("three", BAD, "step should return (observation, reward, terminated, truncated, info)", *POOLS, "fine(2)"),
    *rows("raise in init", BAD, "cannot be made: RuntimeError: no battery", "coarse(2)", *POOLS),
    *rows("exit in init", BAD, "cannot be made: SystemExit: 0", "coarse(2)", *POOLS),
    *rows("raise in reset", FAILED, "raised in reset: RuntimeError: no battery", "coarse(2)", *WORKERS, *POOLS),
    *rows("raise in close", BAD, "its close() raised RuntimeError: the lid is stuck", "coarse(2)", *POOLS),
    *rows("raise in a later close", None, TRAINS, "coarse(2)", "fine(2)", *WORKERS, *POOLS),
    *rows("exit in close", None, TRAINS, "coarse(2)", "fine(2)", *WORKERS, *POOLS),
    *rows("hang in close", None, TRAINS, *HERE, "batched(workers=2)", *POOLS),
    *rows("hang", motet.Stalled, "step_timeout", "coarse(2)", "multi_learner(1)"),
    *rows("hang", LATE, "is still stepping, at environment ", *WORKERS, "pool(2)"),
    *rows("die", FAILED, "it was killed by signal 9 (SIGKILL)", *WORKERS, "pool(2)"),
    *rows("end", FAILED, "it exited with code 3", *WORKERS, "pool(2)"),
]


@pytest.mark.parametrize(("how", "plan", "kind", "words"), TABLE)
def test_what_must_happen(how: str, plan: str, kind: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((thread, "CLOSING"), (staff, "GRACE")):
        monkeypatch.setattr(module, name, 0.3)
    hangs = how.startswith("hang")
    began = time.monotonic()
    with nothing_left(hanging=hangs), warnings.catch_warnings():
        if how == "hang in close":
            warnings.filterwarnings("ignore", message="The environments of 'Broken' have not closed")
        with pytest.raises(kind) if kind else nullcontext() as caught:
            total = play(how, plan) if plan in POOLS else train(how, plan)
    assert time.monotonic() - began < 30
    if caught is None:
        assert total == 48  # of 4 rounds of 3 steps of 4 environments: none is lost or counted twice
        return
    pattern = words.format(n="#")
    said = str(caught.value)
    for number in range(4):
        said = said.replace(f"Environment {number} (", "Environment # (")
    assert pattern in said


def train(how: str, plan: str) -> float:
    limits = {"step_timeout": 3.0 if how == "hang" else 30.0, "restarts": 1}
    result = motet.train(Adds(), partial(Broken, how), PLANS[plan], total_timesteps=48, **limits)
    return float(result.state.total)


def play(how: str, pool: str) -> float:
    env = motet.Gymnasium(partial(Broken, how))
    timeout = 3.0 if how == "hang" else 30.0
    opened = env.open(Opening(0, 4, 0, workers=int(pool[5]), timeout=timeout, restarts=1))
    try:
        opened.reset()
        return float(sum(opened.step((np.zeros(4, np.int32),)).reward.sum() for _ in range(12)))
    finally:
        opened.close()
