"""A graph is a value: traced twice, in whatever process, it is the same; with any change it is another."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

import motet
from motet.flow.fingerprint import fingerprint
from motet.flow.trace import trace

DQN = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, hidden=(8,), prioritised=True)
PPO = motet.PPO(num_envs=4, num_steps=8, num_minibatches=2, hidden=(8,))
ELSEWHERE = """
import motet
from motet.flow.fingerprint import fingerprint
from motet.flow.trace import trace
dqn = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, hidden=(8,), prioritised=True)
print(fingerprint(trace(dqn, motet.make("CartPole-v1"), iterations=3)))
"""


def of(algorithm: motet.Algorithm, env: str = "CartPole-v1", iterations: int = 3) -> str:
    return fingerprint(trace(algorithm, motet.make(env), iterations=iterations))


def test_it_is_the_same_in_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == of(DQN)


@pytest.mark.parametrize(
    "other",
    [
        replace(PPO, learning_rate=2 * PPO.learning_rate),
        replace(PPO, discount=0.9),
        replace(PPO, num_envs=8),
        replace(PPO, hidden=(9,)),
        replace(PPO, update_epochs=2),
    ],
)
def test_any_option_makes_it_another(other: motet.PPO) -> None:
    assert of(other) != of(PPO)


def test_environment_and_length_are_part_of_it() -> None:
    assert len({of(PPO), of(PPO, "Acrobot-v1"), of(PPO, iterations=4)}) == 3


def test_nothing_in_a_graph_is_a_function() -> None:
    """Closures cannot be compared: whatever a graph holds is data."""
    for node in trace(DQN, motet.make("CartPole-v1"), iterations=3).nodes():
        for value in (*vars(node).values(), *(vars(node.replay).values() if node.replay else ())):
            assert type(value).__name__ != "function", f"{node.name} holds {value!r}"
