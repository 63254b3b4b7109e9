"""What is known of the results of the package's own methods, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.flow import results
from motet.flow.graph import Cut, Var
from motet.flow.reduction import Share
from motet.flow.trace import trace
from tests.laws.cases import ALGORITHMS, CONTINUOUS, REPLAY

PASSES: dict[str, Any] = {"num_envs": 8, "num_steps": 8, "update_epochs": 1, "num_minibatches": 2, "hidden": (8,)}


@dataclass(frozen=True)
class Pictures(motet.Environment):
    """Shows images, of nothing."""

    observation_space: motet.Box = motet.Box(0, 255, (36, 36, 1), "uint8")
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = 5

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        return jnp.zeros(()), jnp.zeros((36, 36, 1), jnp.uint8)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        return state, jnp.zeros((36, 36, 1), jnp.uint8), jnp.ones(()), jnp.zeros((), bool)


CASES: dict[str, tuple[motet.Algorithm, motet.Environment]] = {
    **{
        name: (algorithm, motet.make("Pendulum-v1" if isinstance(algorithm, CONTINUOUS) else "CartPole-v1"))
        for name, algorithm in ALGORITHMS.items()
        if name not in ("ppo-unnormalised", "dqn")
    },
    "ppo with a memory": (motet.PPO(**PASSES, core="lstm", core_size=8), motet.make("CartPole-v1")),
    "ppo of continuous actions": (motet.PPO(**PASSES, value_clip=0.2), motet.make("Pendulum-v1")),
    "ppo of images": (motet.PPO(**PASSES, torso="nature"), Pictures()),
    "dqn of images": (motet.DQN(**REPLAY, torso="impala"), Pictures()),
    "sac of discrete actions": (motet.SAC(**REPLAY), motet.make("CartPole-v1")),
}


@pytest.mark.parametrize("name", CASES)
def test_pieces_of_every_result_are_known_to_combine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is averaged because nobody knows better, and nothing needs the batch in one piece."""
    found: list[Share] = []

    def noted(reads: Sequence[Var], *programs: Any) -> list[Share]:
        shares = results_of(reads, *programs)
        found.extend(shares)
        return shares

    results_of = results.find_shares
    monkeypatch.setattr(results, "find_shares", noted)
    graph = trace(*CASES[name], iterations=3)
    assert found and not any(node.whole for node in graph.nodes())
    averaged = {how for var in graph.variables.values() for how in var.combine}
    assert averaged == {None, "mean"}
    parts = [share for share in found if share.kind == "part"]
    assert len(parts) == sum(var.combine.count("mean") for name, var in graph.variables.items() if "/" not in name)


def test_what_is_found_does_not_depend_on_the_cuts_that_were_asked_for() -> None:
    env = motet.make("CartPole-v1")
    algorithm = ALGORITHMS["batch_ppo"]
    cuts = ([], [Cut(2)], [Cut(4, 4)], [Cut(8, 8)])
    graphs = [trace(algorithm, env, iterations=3, cuts=each) for each in cuts]
    facts = [{name: (var.combine, var.blocks) for name, var in graph.variables.items()} for graph in graphs]
    assert all(fact == facts[0] for fact in facts)
    assert any(max(blocks, default=1) > 1 for _, blocks in facts[0].values())
