"""Recurrent cores: a sequence is its steps."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from motet.algorithms.recurrent import CORES, Core

T, B, N, SIZE = 7, 3, 4, 5


def setting(name: Any) -> tuple[Core, Any, Any, Any, Any]:
    """A core, its parameters, a memory that is not the initial one, features, and where episodes begin."""
    core = Core(name, SIZE)
    draw = np.random.default_rng(0)
    features = draw.normal(size=(T, B, N)).astype(np.float32)
    memory = jax.tree.map(lambda leaf: draw.normal(size=(B, *leaf.shape)).astype(leaf.dtype), core.initial_memory())
    return core, jax.jit(core.init)(jax.random.key(0), features), memory, features, draw.random((T, B)) < 0.3


@pytest.mark.parametrize("name", CORES)
def test_a_sequence_is_steps_that_forget_at_the_start_of_episodes(name: Any) -> None:
    core, params, memory, features, first = setting(name)
    assert first.any() and not first.all()
    together, step = jax.jit(core.sequence)(params, memory, features, first), jax.jit(core.step)
    for env in range(B):
        mine = jax.tree.map(lambda leaf, env=env: leaf[env], memory)
        for time in range(T):
            mine = core.initial_memory() if first[time, env] else mine
            mine, out = step(params, mine, features[time, env])
            np.testing.assert_allclose(together[time, env], out, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_nothing_from_before_an_episode_reaches_into_it(name: Any) -> None:
    core, params, memory, features, _ = setting(name)
    first = np.arange(T)[:, None] == np.full((1, B), 3)
    gradient = jax.jit(jax.grad(lambda features: core.sequence(params, memory, features, first)[-1].sum()))(features)
    np.testing.assert_array_equal(gradient[:3], 0)
    assert np.abs(gradient[3]).max() > 0


def test_without_a_core_features_pass_through() -> None:
    core, params, memory, features, first = setting("none")
    assert (params, memory, core.initial_memory()) == ((), (), ())
    np.testing.assert_array_equal(core.sequence(params, memory, features, first), features)
