"""Optimisers and schedules of somebody's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import motet
from motet.flow.spaces import Box, Discrete

SPEC = motet.Spec(Box(-1.0, 1.0, (2,)), Discrete(2), 4)


def learn(**options: Any) -> np.ndarray:
    """Where four updates with the same gradient lead to."""
    optimiser, gradient = motet.A2C(**options).bind(SPEC).optimiser, jnp.asarray([3.0, -0.1])

    def step(carry: Any, _: None) -> Any:
        params, state = carry
        changes, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, changes), state), None

    first = jnp.ones(2)
    return np.asarray(jax.jit(lambda: jax.lax.scan(step, (first, optimiser.init(first)), None, 4)[0][0])())


def halves(count: jax.Array) -> jax.Array:
    return jnp.asarray([1e-2, 5e-3, 2.5e-3, 0.0])[count]  # only a whole number is an index


def by_spec(spec: motet.Spec, updates: int) -> optax.GradientTransformation:
    assert updates == spec.iterations == 4
    return optax.sgd(optax.linear_schedule(1e-2, 0.0, updates))


sgd = optax.sgd(1e-2)


def test_an_optimiser_takes_the_place_of_the_built_in_one() -> None:
    usual = learn(anneal=False, learning_rate=1e-3)
    chain = optax.chain(optax.clip_by_global_norm(0.5), optax.rmsprop(1e-3, decay=0.99, eps=1e-5))
    np.testing.assert_array_equal(learn(optimizer=chain), usual)
    np.testing.assert_array_equal(learn(optimizer=lambda updates: chain), usual)
    for given in (sgd, "tests.algorithms.test_own_optimisers:sgd"):
        np.testing.assert_allclose(learn(optimizer=given), [1 - 4 * 0.03, 1 + 4 * 0.001], rtol=1e-6)


def test_a_schedule_takes_the_place_of_a_rate() -> None:
    steady = learn(learning_rate=1e-3, anneal=False)
    np.testing.assert_array_equal(learn(learning_rate=lambda count: 1e-3), steady)
    np.testing.assert_allclose(learn(learning_rate=optax.linear_schedule(1e-3, 0.0, 4)), learn(learning_rate=1e-3))
    name = "tests.algorithms.test_own_optimisers:halves"
    np.testing.assert_array_equal(learn(learning_rate=halves), learn(learning_rate=name))
    np.testing.assert_allclose(learn(optimizer=by_spec), [1 - 0.03 * 2.5, 1 + 0.001 * 2.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "updates"),
    [
        (motet.PPO(update_epochs=3, num_minibatches=2), 60),
        (motet.BatchPPO(update_epochs=3, num_minibatches=2), 60),
        (motet.A2C(), 10),
        (motet.IMPALA(), 10),
        (motet.DQN(gradient_steps=4), 40),
        (motet.DDPG(gradient_steps=4), 40),
        (motet.TD3(gradient_steps=4), 40),
        (motet.SAC(gradient_steps=4), 40),
    ],
    ids=lambda each: type(each).__name__,
)
def test_every_algorithm_tells_how_many_updates_there_will_be(algorithm: Any, updates: int) -> None:
    actions = Discrete(2) if Discrete in algorithm.action_spaces else Box(-1.0, 1.0, (1,))
    spec, told = motet.Spec(Box(-1.0, 1.0, (2,)), actions, 10), []

    def make(updates: int) -> optax.GradientTransformation:
        told.append(updates)
        return sgd

    assert replace(algorithm, optimizer=make).bind(spec).optimiser is sgd
    assert told == [updates]
    counted = replace(algorithm, learning_rate=optax.constant_schedule(1e-3)).bind(spec).optimiser
    counts = [leaf for leaf in jax.tree.leaves(counted.init({"w": jnp.zeros(2)})) if leaf.dtype == jnp.int32]
    steady = replace(algorithm, **({"anneal": False} if hasattr(algorithm, "anneal") else {})).bind(spec).optimiser
    fewer = [leaf for leaf in jax.tree.leaves(steady.init({"w": jnp.zeros(2)})) if leaf.dtype == jnp.int32]
    assert len(counts) == len(fewer) + 1  # a schedule counts updates


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": lambda spec: 3}, "optimizer must be an optax.GradientTransformation"),
        ({"optimizer": "tests.algorithms.test_own_optimisers:SPEC"}, "optimizer must be an optax.Grad"),
        ({"learning_rate": "tests.algorithms.test_own_optimisers:SPEC"}, "learning_rate must be a number, a schedule"),
        ({"learning_rate": lambda count: jnp.ones(3)}, "one number for an update's number, but gives an array of (3,)"),
    ],
)
def test_what_is_no_optimiser_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(motet.BadOption) as caught:
        learn(**options)
    assert words in str(caught.value)
