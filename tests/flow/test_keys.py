"""Random numbers in called methods: one for each row, the same however the batch is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.run import gather
from motet.flow.values import Transitions
from tests.laws.cases import assert_close, run, traced

ROWS = 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drawn:
    params: jax.Array
    noise: jax.Array  # [ROWS] what the last call drew, row by row


@dataclass(frozen=True, kw_only=True)
class Draws(motet.Algorithm):
    """Learns nothing; draws a number for each row of a sample."""

    num_envs: int = 4

    def init(self, key: jax.Array) -> Drawn:
        return Drawn(jnp.zeros(()), jnp.zeros(ROWS))

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32))

    def draw(self, params: Any, sample: Transitions, keys: jax.Array) -> jax.Array:
        return jax.vmap(jax.random.normal)(keys)

    def apply(self, state: Drawn, noise: jax.Array) -> Drawn:
        return Drawn(state.params, noise)

    def loop(self, flow: motet.Flow) -> None:
        steps = flow.unroll(self.act, steps=4)
        flow.remember(steps.transitions, into=motet.Uniform(64))
        sample = flow.sample(ROWS)
        flow.apply(self.apply, flow.call(self.draw, sample))


class DrawsTwice(Draws):
    """As well as a number for the whole batch."""

    def draw(self, params: Any, sample: Transitions, keys: jax.Array, key: jax.Array) -> jax.Array:  # type: ignore[override]
        return jax.vmap(jax.random.normal)(keys) + jax.random.normal(key)


class DrawsForTime(Draws):
    """Where rows are steps, not environments."""

    def draw(self, params: Any, reward: jax.Array, keys: jax.Array) -> jax.Array:
        return jax.vmap(jax.random.normal)(keys)

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.apply, flow.call(self.draw, flow.unroll(self.act, steps=4).reward))


def noise(plan: motet.Plan) -> np.ndarray:
    graph = traced(Draws(), plan)
    return gather(graph, run(graph, plan)[0], "learner").noise


def test_a_batch_in_pieces_draws_what_it_draws_whole() -> None:
    pieces = motet.Plan({"calls": motet.Fragment(("act", "env", "remember", "sample", "draw"), replicas=2),
                         "rest": motet.Fragment(("*",))})  # fmt: skip
    whole = noise(motet.anakin())
    assert len(np.unique(whole)) == ROWS
    assert_close(noise(pieces), whole)


def test_only_a_key_for_the_whole_batch_is_one_that_pieces_cannot_share() -> None:
    env = motet.make("CartPole-v1")
    assert not motet.trace(Draws(), env).sites()["draw"].draws
    assert motet.trace(DrawsTwice(), env).sites()["draw"].draws


def test_keys_need_rows() -> None:
    with pytest.raises(motet.BadAlgorithm, match=r"DrawsForTime.draw wants keys.*it reads policy, rollout.reward"):
        motet.trace(DrawsForTime(), motet.make("CartPole-v1"))
