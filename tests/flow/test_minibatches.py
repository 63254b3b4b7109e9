"""Passes over a batch: several over one, and over what was drawn from a replay; the same rows however it is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.flow import shuffle
from tests.flow.probe import Probe
from tests.published.agreement import assert_agrees, traced
from tests.published.walk import Walk

WALK = Walk()


class TwoPasses(Probe):
    """Goes over one rollout twice, in other parts each time."""

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        for count in (2, 4):
            with flow.minibatches(rollout, epochs=2, count=count) as minibatch:
                self.learn(flow, minibatch)


@dataclass(frozen=True, kw_only=True)
class FromSample(Probe):
    """Goes over a sample in parts, of single steps or of sequences."""

    sequence: int | None = None

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.remember(rollout.transitions, into=motet.Uniform(128, sequence=self.sequence))
        sample = flow.sample(16)
        with flow.minibatches(sample.items, epochs=2, count=2) as minibatch:
            self.learn(flow, minibatch)


ALGORITHMS = {"two passes": TwoPasses(), "a sample": FromSample(), "sequences": FromSample(sequence=3)}


@pytest.mark.parametrize("plan", ["central-2", "coarse-2-sharded"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_parts_are_the_same_however_the_batch_is_cut(name: str, plan: str) -> None:
    """In replicas and in shards."""
    assert_agrees(ALGORITHMS[name], WALK, plan, iterations=2)


def test_two_passes_have_variables_and_shuffles_of_their_own() -> None:
    graph = traced(TwoPasses(), WALK, 2)
    assert {name.split(".")[0] for name in graph.variables if name.startswith("minibatch")} == {
        "minibatch", "minibatch_2"
    }  # fmt: skip
    assert {"permute", "permute_2", "select", "select_2"} <= set(graph.sites())


def test_a_minibatch_of_a_sample_is_rows_of_it_and_each_row_is_in_one() -> None:
    rows, envs, count = 48, 8, 3
    blocks = shuffle.item_blocks(rows, envs, count)
    order = shuffle.sequence_permutations(jax.random.key(0), jnp.arange(blocks), rows // blocks)
    order = order.reshape(blocks, count, -1)
    parts = [shuffle.select_items(order[:, part], jnp.arange(rows)) for part in range(count)]
    assert [len(part) for part in parts] == [rows // count] * count
    assert sorted(np.concatenate(parts)) == list(range(rows))
    assert any(np.any(np.diff(part) < 0) for part in parts)


def test_rows_divide_into_blocks_as_the_environments_do() -> None:
    assert shuffle.item_blocks(32, 8, 4) == 8
    assert shuffle.item_blocks(32, 8, 16) == 2
    assert shuffle.item_blocks(6, 4, 3) == 2
    with pytest.raises(motet.BadOption, match="32 rows cannot be cut into 3 equal minibatches"):
        shuffle.item_blocks(32, 8, 3)


class Mixed(Probe):
    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.remember(rollout.transitions, into=motet.Uniform(128))
        sample, more = flow.sample(16), flow.sample(8)
        with flow.minibatches((sample.items, more.items), epochs=1, count=2) as minibatch:
            self.learn(flow, minibatch[0])


def test_values_of_one_batch_have_as_many_rows() -> None:
    with pytest.raises(motet.BadAlgorithm, match=r"the same number of rows; these have 16 and 8"):
        traced(Mixed(), WALK, 1)


class KeysInParts(Probe):
    """Weighs the rows of each part of a sample by numbers drawn for each of them."""

    def gradient(self, params: Any, batch: Any, keys: jax.Array) -> Any:  # type: ignore[override]
        noise = jax.vmap(jax.random.normal)(keys)
        return super().gradient(params, replace(batch, reward=batch.reward * noise))

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.remember(rollout.transitions, into=motet.Uniform(128))
        with flow.minibatches(flow.sample(32).items, epochs=1, count=2) as minibatch:
            self.learn(flow, minibatch)


@pytest.mark.parametrize("plan", ["anakin-2", "central-2"])
def test_rows_of_a_part_of_a_sample_have_the_same_keys_however_it_is_cut(plan: str) -> None:
    assert_agrees(KeysInParts(), WALK, plan, iterations=2)
