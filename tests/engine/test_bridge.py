"""Host environments that compiled programs call: what comes back is the same as where a step is a call of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.assemble import Settings, assemble
from motet.flow.graph import Graph
from motet.plan.schedule import Call
from tests.laws import host_envs
from tests.laws.cases import assert_close, learner, run, traced

DQN = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, train_frequency=2, hidden=(8,))
ALONE = motet.multi_learner(1)


class Threaded(gymnasium.Env[np.ndarray, np.int64]):
    """Says which thread steps it, in its reward: 0 for the one that reset it first."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None):
        self.render_mode, self.home = render_mode, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.home = self.home or threading.get_ident()
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(2, np.float32), float(threading.get_ident() != self.home), False, False, {}


class Limited(Threaded):
    """Cut off after every step, so that its rewards are seen as returns."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, True, info


class Computing(Threaded):
    """An environment that is itself written with JAX."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        here = np.asarray(jax.jit(jnp.tanh)(jnp.full((64, 64), 0.5)) @ jnp.ones((64, 2)))[0] / 64
        return here.astype(np.float32), 1.0, False, False, {}


def whole(graph: Graph, plan: motet.Plan) -> Call | None:
    """The call that is all of the run."""
    return assemble(graph, plan, {"cpu": jax.devices()}, Settings()).schedules["learners"].whole


@pytest.mark.parametrize("make", [host_envs.Numbered, host_envs.Corridor])
def test_it_learns_the_same_inside_and_outside(make: Any) -> None:
    """Whether programs ask is the plan's to say, and the numbers do not depend on it."""
    between = replace(ALONE, fragments={"learners": replace(ALONE.fragments["learners"], inside=False)})
    graph = traced(DQN, ALONE, motet.Gymnasium(make), iterations=6)
    assert whole(graph, ALONE) is not None
    assert whole(graph, between) is None
    one, rows = run(graph, ALONE, iterations=6)
    steps, others = run(graph, between, iterations=6)
    assert_close(learner(graph, one), learner(graph, steps))
    assert_close(np.stack(rows.seen), np.stack(others.seen))


def test_what_draws_pictures_is_stepped_by_one_thread() -> None:
    env = motet.Gymnasium(lambda: Threaded("rgb_array"))
    assert env.one_thread and not motet.Gymnasium(Threaded).one_thread
    assert whole(traced(DQN, ALONE, env, iterations=2), ALONE) is None
    env = motet.Gymnasium(lambda: Limited("rgb_array"))
    result = motet.train(replace(DQN, hidden=(64, 64)), env, ALONE, total_timesteps=400)
    assert result.metrics["return"] == 0


def test_an_environment_may_compute_with_jax_itself() -> None:
    result = motet.train(DQN, Computing, ALONE, total_timesteps=200)
    assert result.steps >= 200


def test_an_error_keeps_its_cause() -> None:
    with pytest.raises(motet.EnvironmentFailed, match="the simulator broke") as caught:
        motet.train(DQN, host_envs.Failing, ALONE, total_timesteps=1024)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


ABANDONED = """
import threading, gymnasium, motet
busy = threading.Event()
class Counted(gymnasium.Wrapper):
    count = 0
    def step(self, action):
        self.count += 1
        if self.count == 500:
            busy.set()
        return self.env.step(action)
dqn = motet.DQN(num_envs=1, learning_starts=200, hidden=(8,))
make = lambda: Counted(gymnasium.make("CartPole-v1"))
go = lambda: motet.train(dqn, make, motet.multi_learner(1), total_timesteps=10**8)
threading.Thread(target=go, daemon=True).start()
assert busy.wait(100)
"""


def test_a_process_may_end_while_a_program_asks() -> None:
    """A thread in the middle of a compiled call must not find the interpreter gone."""
    done = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
