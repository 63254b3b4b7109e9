"""What is chosen for CPUs alone: other platforms are lowered for without conditions, and both ways agree."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.algorithms.networks import _by_columns
from motet.envs.cartpole import CartPole
from motet.flow.algorithm import Spec
from motet.flow.environment import advance, begin
from motet.flow.values import Rollout

B, T = 4, 3


class Short(CartPole):
    """Its episodes end."""

    time_limit = 2


def step(action: Any, keys: Any) -> Any:
    env = Short()
    episode, _, _ = begin(env, keys)
    for _ in range(3):
        episode, now = advance(env, episode, action, keys)
    return now


def values() -> tuple[Any, Any]:
    env = motet.make("CartPole-v1")
    ppo = motet.PPO(num_envs=B, num_steps=T, hidden=(4,)).bind(Spec(env.observation_space, env.action_space, 2))
    params = ppo.policy(ppo.init(jax.random.key(0)))
    chance = np.random.default_rng(0)
    observation = chance.normal(size=(T, B, 4)).astype(np.float32)
    flag = chance.random((T, B)) < 0.5
    extras = jax.vmap(jax.vmap(lambda o: ppo.act(params, (), o, jax.random.key(0)).extras))(observation)
    rollout = Rollout(
        observation, np.zeros((T, B), np.int32), extras, np.ones((T, B), np.float32), ~flag, flag, observation + 1
    )
    return (lambda rollout: ppo.targets(params, rollout)), rollout


STEP = (step, (np.zeros(B, np.int32), jax.random.split(jax.random.key(0), B)))
TARGETS = (values()[0], (values()[1],))


@pytest.mark.parametrize(("function", "arguments"), [STEP, TARGETS], ids=["reset", "targets"])
def test_other_platforms_have_no_choices_to_make(function: Any, arguments: Any) -> None:
    traced = jax.jit(function).trace(*arguments)
    here, there = (traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda"))
    # What chooses the platform is a case of a constant, in both; what looks at the numbers is one more.
    assert here.count("stablehlo.case") > there.count("stablehlo.case")
    assert "stablehlo.while" not in there


def narrow(right: Any, left: Any) -> Any:
    return jax.value_and_grad(lambda right: jax.numpy.sum(_by_columns(left, right, (((1,), (0,)), ((), ())))))(right)


NARROW = (narrow, (np.ones((3, 2), np.float32), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)))


def test_other_platforms_take_narrow_products_at_once() -> None:
    function, arguments = NARROW
    here, there = (
        jax.jit(function)
        .trace(*arguments)
        .lower(lowering_platforms=(platform,))
        .as_text()
        .count("stablehlo.concatenate")
        for platform in ("cpu", "cuda")
    )
    assert here > there == 0


@pytest.mark.parametrize(("function", "arguments"), [STEP, TARGETS, NARROW], ids=["reset", "targets", "narrow"])
def test_both_ways_agree(function: Any, arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = jax.jit(function)(*arguments)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cpu, default: default(*args))
    there = jax.jit(lambda *args: function(*args))(*arguments)
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
