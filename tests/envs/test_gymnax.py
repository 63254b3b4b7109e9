"""gymnax in both of its APIs: what it calls `done` is taken apart, and its types are made steady."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.envs import families, make
from motet.envs.cartpole import CartPole
from motet.envs.gymnax import Gymnax, ids, space_of
from motet.errors import BadEnvironment, UnknownName
from motet.flow.environment import advance, begin, check_environment
from motet.flow.spaces import Box, Dict, Discrete, Tuple

KEY = jax.random.key(0)


@dataclass(frozen=True)
class Params:
    max_steps_in_episode: int = 5

    def replace(self, **changes: Any) -> Params:
        return replace(self, **changes)


class Old:
    """An environment after gymnax 0.0.9: `done` holds the time limit, and the state is made of Python numbers.

    Action 1 moves to the right, and at 3 the task ends. The observation shows the part of the time that is over.
    """

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Any, Any]:
        state = {"place": 0, "time": 0, "drift": 0, "over": False}
        return self.observe(state, params), state

    def step_env(self, key: jax.Array, state: Any, action: Any, params: Params) -> tuple[Any, ...]:
        moved = {"place": state["place"] + action, "time": state["time"] + 1, "drift": state["drift"] + 0.5}
        over = (moved["place"] >= 3) | (moved["time"] >= params.max_steps_in_episode)
        return self.observe(moved, params), {**moved, "over": over}, 1 - state["over"], over, {}

    def observe(self, state: Any, params: Params) -> jax.Array:
        return jnp.array([state["place"], state["time"] / params.max_steps_in_episode])

    def observation_space(self, params: Params) -> Any:
        return space("Box", low=0, high=jnp.array([3.0, 1.0]), shape=(2,), dtype=jnp.float32)

    def action_space(self, params: Params) -> Any:
        return space("Discrete", n=2)


def space(kind: str, **parts: Any) -> Any:
    return type(kind, (SimpleNamespace,), {})(**parts)


@pytest.fixture
def old_gymnax(monkeypatch):
    module = SimpleNamespace(registered_envs=["Old-v0"], make=lambda env_id: (Old(), Params()))
    monkeypatch.setattr(families, "import_module", lambda name: module)


def walk(env, actions):
    episode, _, _ = begin(env, KEY[None])
    steps = []
    for action in actions:
        episode, step = advance(env, episode, jnp.array([action]), KEY[None])
        steps.append(step)
    return jax.tree.map(lambda *leaves: np.stack(leaves)[:, 0], *steps)


def test_the_time_limit_is_taken_out_of_done(old_gymnax):
    env = Gymnax("Old-v0")
    assert env.time_limit == 5
    steps = walk(env, [1, 1, 1, 0, 0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(np.flatnonzero(steps.terminated), [2])
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated), [7])
    np.testing.assert_array_equal(steps.finished_length[[2, 7]], [3, 5])
    np.testing.assert_array_equal(steps.reward, 1)


def test_observations_still_show_the_time_that_is_over(old_gymnax):
    steps = walk(Gymnax("Old-v0"), [0] * 5)
    np.testing.assert_allclose(steps.next_observation[:, 1], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)


def test_states_of_python_numbers_get_steady_types(old_gymnax):
    env = Gymnax("Old-v0")
    check_environment(env)
    state, _ = jax.eval_shape(env.reset, KEY)
    after = jax.eval_shape(env.step, state, env.action_space.aval, KEY)[0]
    kinds = [{name: (leaf.dtype, leaf.weak_type) for name, leaf in tree.items()} for tree in (state, after)]
    assert kinds[0] == kinds[1]
    assert kinds[0]["drift"] == (jnp.result_type(float), False), "an int that a step makes a float must be one"


def test_environments_of_one_id_are_equal_so_that_compiled_functions_are_shared():
    assert make("gymnax/CartPole-v1") == make("gymnax/CartPole-v1")
    assert hash(make("gymnax/CartPole-v1")) == hash(make("gymnax/CartPole-v1"))
    assert make("gymnax/CartPole-v1") != make("gymnax/Pendulum-v1")


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "DeepSea-bsuite", "FrozenLake-misc", "BernoulliBandit-misc"]
)
def test_environments_of_every_kind_fit_the_contract(env_id):
    env = make(f"gymnax/{env_id}")
    check_environment(env)
    assert env.name == f"gymnax/{env_id}" and env.time_limit > 0


def test_every_transition_of_cartpole_is_the_twins():
    ours, theirs = CartPole(), make("gymnax/CartPole-v1")
    state, _ = theirs.reset(KEY)
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (500, 4)).astype(jnp.result_type(float)) * np.array([2.6, 3, 0.26, 3], np.float32)
    for action in (0, 1):

        def foreign(row, action=action):
            placed = state.replace(x=row[0], x_dot=row[1], theta=row[2], theta_dot=row[3])
            return theirs.step(placed, jnp.int32(action), KEY)[1:]

        got = jax.jit(jax.vmap(foreign))(states)
        expected = jax.jit(jax.vmap(lambda row, action=action: ours.step(row, jnp.int32(action), KEY)[1:]))(states)
        inside = (np.abs(states[:, 0]) < 2.4) & (np.abs(states[:, 2]) < np.radians(12))  # elsewhere gymnax pays 0
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(got[1][inside], expected[1][inside])
        np.testing.assert_array_equal(got[2], expected[2])


def test_spaces_are_converted():
    largest = float(np.finfo(np.float32).max)
    box = space("Box", low=-largest, high=jnp.array([1.0, largest]), shape=(2,), dtype=jnp.float32)
    assert space_of(box) == Box(-np.inf, (1.0, np.inf), (2,))
    assert space_of(space("Box", low=0, high=1, shape=(2, 2), dtype=jnp.int32)) == Box(0, 1, (2, 2), "int32")
    several = space("Dict", spaces={"b": space("Discrete", n=3), "a": space("Tuple", spaces=[box])})
    assert space_of(several) == Dict({"a": Tuple((space_of(box),)), "b": Discrete(3)})
    with pytest.raises(BadEnvironment, match="one is a Graph"):
        space_of(space("Graph"))


def test_an_unknown_id_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'Breakout-MinAtar'"):
        make("gymnax/Breakout-MinAtr")
    assert "Breakout-MinAtar" in ids()
