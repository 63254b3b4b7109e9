"""What is known of the results of the package's own methods, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.flow import results
from motet.flow.graph import Cut, Var
from motet.flow.reduction import Share
from motet.flow.trace import trace
from motet.plan.check import violations
from tests.flow.probe import Probe
from tests.laws.cases import ALGORITHMS, CONTINUOUS, REPLAY
from tests.published.walk import Walk

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


class ByRows(Probe):
    """Changes its rewards in a method of their own."""

    change: Callable[..., jax.Array]

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        reward = flow.call(lambda params, reward: type(self).change(reward), rollout.reward)
        self.learn(flow, replace(rollout, reward=reward))


NO_ROWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "the first row": lambda x: jnp.where(jnp.arange(x.shape[1])[None] == 0, 0, x),
    "odd rows": lambda x: jnp.where(jnp.arange(x.shape[1])[None] % 2 == 1, 0, x),
    "a row that is set": lambda x: x.at[:, 0].set(0),
    "rows by the numbers of others": lambda x: x[:, (jnp.arange(x.shape[1]) + 1) % x.shape[1]],
    "rows moved by padding": lambda x: jnp.pad(x, ((0, 0), (1, 0)))[:, :-1],
    "half of the rows": lambda x: jnp.concatenate([x[:, : x.shape[1] // 2], 0 * x[:, x.shape[1] // 2 :]], 1),
    "halves that change places": lambda x: x.reshape(x.shape[0], 2, -1)[:, ::-1].reshape(x.shape),
    "sums of the rows so far": lambda x: jax.lax.associative_scan(jnp.add, x, axis=1),
    "numbers of a key of its own": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "an orthogonal basis": lambda x: jnp.linalg.qr(x.T)[0].T,
    "a spectrum": lambda x: jnp.fft.fft(x, axis=1).real,
    "what Python makes of them": lambda x: jax.pure_callback(
        lambda x: np.sort(x, 1), jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"
    ),
}


@pytest.mark.parametrize("case", NO_ROWS)
def test_rows_that_pieces_would_get_wrong_need_the_batch_in_one_piece(case: str) -> None:
    kind = type("Mine", (ByRows,), {"change": staticmethod(NO_ROWS[case])})
    graph = trace(kind(), Walk(), iterations=1)
    (node,) = (node for node in graph.nodes() if node.name == "lambda")
    assert node.whole and "lambda" in node.whole[0]
    plan = motet.anakin(2)
    found = violations(trace(kind(), Walk(), iterations=1, cuts=plan.cuts()), plan)
    assert any("node 'lambda' returns lambda" in each for each in found)
