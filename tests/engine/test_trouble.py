"""What authors put into their methods and engines have stumbled over."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.errors import MotetError
from tests.laws import host_envs
from tests.laws.cases import ALGORITHMS, REPLAY, run, traced


@dataclass(frozen=True, kw_only=True)
class Talking(motet.A2C):
    """Prints from inside of its methods."""

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        jax.debug.print("acting on {x}", x=observation[0])
        return super().act(policy, memory, observation, key)


def test_replicas_may_print_from_inside_of_programs(capfd: pytest.CaptureFixture[str]) -> None:
    motet.train(Talking(num_envs=4, num_steps=2, hidden=(4,)), "CartPole-v1", motet.coarse(2), total_timesteps=16)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("acting on") >= 8


@dataclass(frozen=True, kw_only=True)
class Careless(motet.DQN):
    """Its priorities are no numbers from 0 on."""

    def gradient(self, weights: Any, sample: Any) -> Any:
        gradients, metrics, errors = super().gradient(weights, sample)
        return gradients, metrics, errors - 1e6


def test_bad_priorities_are_seen_soon_in_a_fused_run() -> None:
    seen: list[int] = []

    class Watching:
        def status(self, text: str) -> None: ...

        def rows(self, first: int, rows: Any) -> None:
            seen.append(first + len(rows))

    from motet.engine import run as engine
    from motet.engine.place import devices_for

    algorithm = Careless(**{**REPLAY, "gradient_steps": 1}, prioritised=True)
    graph = traced(algorithm, motet.anakin(), iterations=5000)
    with pytest.raises(MotetError, match="priorit"):
        engine.run(graph, motet.anakin(), devices_for(motet.anakin()), Watching(), 5000)
    assert seen[-1] <= 600


@pytest.mark.parametrize(("prioritised", "most"), [(True, 256), (False, None)])
def test_calls_are_short_where_priorities_may_be_bad(prioritised: bool, most: int | None) -> None:
    from motet.engine.guard import Guard
    from motet.engine.report import Columns

    graph = traced(motet.DQN(**REPLAY, prioritised=prioritised), motet.anakin(), iterations=3)
    assert Guard(graph, Columns(graph)).most == most


def test_workers_and_first_ready_run_in_one_thread_too() -> None:
    """While all wait for processes, nobody can go on here, and that is no deadlock."""
    algorithm = motet.PPO(num_envs=4, num_steps=4, num_minibatches=2, update_epochs=1, hidden=(4,))
    plan = motet.sebulba(threads=2, workers=1, first_ready=True)
    env = motet.Gymnasium(host_envs.Corridor)
    graph = traced(algorithm, plan, env, iterations=3)
    outcome, watcher = run(graph, plan, iterations=3, mode="serial")
    assert len(watcher.seen) == outcome.iterations == 3


USED_BEFORE = """
import jax, jax.numpy as jnp
jnp.ones(3).block_until_ready()  # JAX has made its devices: they hand computations over to threads of their own
import motet
from tests.laws import host_envs
dqn = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, train_frequency=2, hidden=(8,))
try:
    motet.train(dqn, host_envs.Failing, motet.multi_learner(1), total_timesteps=4096)
except motet.EnvironmentFailed as error:
    assert isinstance(error.__cause__, ZeroDivisionError), repr(error.__cause__)
    print("named")
from motet.engine.bridge import running
assert running.count == 0
print(motet.train(dqn, host_envs.Corridor, motet.multi_learner(1), total_timesteps=200).steps)
"""


def test_errors_keep_their_cause_where_jax_was_used_before() -> None:
    done = subprocess.run([sys.executable, "-c", USED_BEFORE], capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines()[:1] == ["named"], done.stderr
    assert int(done.stdout.splitlines()[1]) >= 200


def test_asking_who_waits_while_others_begin_to() -> None:
    """The table of who does what changes while it is read."""
    import threading

    from motet.engine.ports import Channel
    from motet.engine.supervise import Supervisor
    from motet.engine.waits import Arrival

    supervisor = Supervisor(1.0)
    stop = threading.Event()

    def announce() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            supervisor.announce(f"worker {number % 5000}", "busy")

    thread = threading.Thread(target=announce)
    thread.start()
    wait = Arrival(Channel("policy", "learner", "actors", (), 1, latest=False))
    try:
        for _ in range(200):
            assert "has waited" in str(supervisor.stalled("me", wait))
    finally:
        stop.set()
        thread.join()


def test_a_sharded_replica_may_be_one_of_several() -> None:
    """Two replicas of two shards each compile and run at once."""
    fragments = {
        "actors": motet.Fragment(("act", "env"), replicas=2, shards=2),
        "learner": motet.Fragment(("*",), shards=2),
    }
    plan = motet.Plan(fragments)
    algorithm = replace(ALGORITHMS["a2c"], num_steps=3)  # type: ignore[type-var]
    outcome, _ = run(traced(algorithm, plan), plan)
    assert jnp.isfinite(outcome.variables["learner"][0]["learner"][0]).all()
