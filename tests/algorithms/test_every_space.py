"""Algorithms train on environments of every space, and what they learned can be saved, read and asked."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import motet
from motet.cli.report import short_space
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

TINY: dict[str, Any] = {"num_envs": 2, "num_steps": 4, "hidden": (8,), "anneal": False}
PPO = {**TINY, "update_epochs": 1, "num_minibatches": 2}


class Counting(motet.Environment):
    """Shows the step in all its parts; a step is worth the sum of the numbers in the action. Episodes have 3 steps."""

    time_limit = 3

    def __init__(self, observation_space: Space, action_space: Space):
        self.observation_space, self.action_space = observation_space, action_space

    def observe(self, state: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: jnp.full(leaf.shape, state % 2, leaf.dtype), self.observation_space.aval)

    def reset(self, key: jax.Array) -> tuple[jax.Array, Any]:
        state = jnp.zeros((), jnp.int32)
        return state, self.observe(state)

    def step(self, state: jax.Array, action: Any, key: jax.Array) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
        float_type = jnp.result_type(float)
        reward = sum(jnp.sum(leaf).astype(float_type) for leaf in jax.tree.leaves(action))
        return state + 1, self.observe(state + 1), jnp.asarray(reward), jnp.zeros((), bool)


MIXED = Dict({"kind": Discrete(3), "speed": Box(-1.0, 1.0, (2,)), "flags": Tuple((MultiBinary((2,)),))})
IMAGE = Box(0, 255, (36, 36, 1), "uint8")
CASES = {
    "dict-multidiscrete": (motet.PPO(**PPO), MIXED, MultiDiscrete((2, 3))),
    "tuple-multibinary": (motet.PPO(**PPO), MultiDiscrete((3, 2)), Tuple((MultiBinary((2, 2)), Box(-1.0, 1.0, ())))),
    "image": (motet.PPO(**PPO, torso="nature"), IMAGE, Discrete(2)),
}


def blank(space: Space) -> Any:
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), space.aval)


@pytest.mark.parametrize("case", CASES)
def test_an_iteration_trains_and_its_policy_survives_the_disk(case: str, tmp_path: Path) -> None:
    algorithm, observations, actions = CASES[case]
    env = Counting(observations, actions)
    before = jax.eval_shape(algorithm.bind(motet.Spec(observations, actions, 1)).init, jax.random.key(0))
    result = motet.train(algorithm, env, motet.anakin(), total_timesteps=8, run_dir=tmp_path / "run")
    assert jax.tree.structure(result.state) == jax.tree.structure(before)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state))
    moments = optax.tree_utils.tree_get(result.state.optimiser, "mu")
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(moments))  # gradients reached every layer
    loaded = motet.Policy.load(tmp_path / "run", type(algorithm))
    assert loaded.algorithm == result.policy.algorithm  # what was left open is settled
    assert loaded.algorithm.spec.observation_space == observations
    assert loaded.algorithm.spec.action_space == actions
    jax.tree.map(np.testing.assert_array_equal, loaded.params, result.policy.params)
    action = loaded(blank(observations))
    assert jax.tree.structure(action) == jax.tree.structure(actions.aval)
    for leaf, aval in zip(jax.tree.leaves(action), jax.tree.leaves(actions.aval), strict=True):
        assert (type(leaf), leaf.shape, leaf.dtype) == (np.ndarray, aval.shape, aval.dtype)


@pytest.mark.parametrize("algorithm", [motet.A2C(**TINY, torso="impala"), motet.DQN(num_envs=2, torso="impala")])
def test_images_and_numbers_together_can_be_traced(algorithm: motet.Algorithm) -> None:
    """Compiling so deep a network takes longer than all other tests here."""
    space = Dict({"camera": Box(0, 255, (3, 5, 5), "uint8"), "speed": Box(-1.0, 1.0, (2,))})
    shapes = {leaf.shape for leaf in motet.trace(algorithm, Counting(space, Discrete(2))).variables["policy"].avals}
    assert {(3, 3, 3, 16), (256 + 2, algorithm.hidden[0])} <= shapes  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def policy() -> motet.Policy:
    """An untrained one for dictionaries: what is refused is refused before it acts."""
    space = Dict({"kind": Discrete(3), "pair": Tuple((MultiBinary((2,)), Box(-1.0, 1.0, (1,))))})
    return motet.Policy(motet.PPO().bind(motet.Spec(space, Discrete(2), 1)), None)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"Dict\(.*\), got a ndarray and not a dictionary"),
        ({"kind": 1}, r"Dict\(.*\), got a dictionary of kind"),
        ({"kind": 1, "pair": 3}, r"Tuple\(.*\) at \['pair'\], got a int and not a tuple of 2"),
        ({"kind": 1, "pair": ([0, 1],)}, r"Tuple\(.*\) at \['pair'\], got a tuple of 1 and not a tuple of 2"),
        ({"kind": 1, "pair": ([0, 1, 1], [0.5])}, r"MultiBinary.* at \['pair'\]\[0\], got an array of shape \(3,\)"),
        ({"kind": 1.5, "pair": ([0, 1], [0.5])}, r"Discrete\(3\) at \['kind'\], got an array of float64"),
        ({"kind": "one", "pair": ([0, 1], [0.5])}, r"Discrete\(3\) at \['kind'\], got an array of <U3"),
    ],
)
def test_an_observation_of_another_structure_is_refused(policy: motet.Policy, observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected one observation of {message}"):
        policy(observation)


def test_any_mapping_is_a_dictionary_and_a_list_a_tuple() -> None:
    space = Dict({"b": Discrete(3), "a": Tuple((Box(-1.0, 1.0, (1,)),))})
    bound = motet.A2C(hidden=(4,)).bind(motet.Spec(space, Discrete(2), 1))
    policy = motet.Policy(bound, jax.jit(bound.networks.init)(jax.random.key(0)))
    assert policy(OrderedDict(b=1, a=[[0.5]])) == policy({"a": (np.array([0.5]),), "b": np.int64(1)})


def test_an_action_of_another_structure_is_named() -> None:
    class Careless(motet.A2C):
        def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
            return motet.Decision(jnp.zeros((), jnp.int32))

    env = Counting(Discrete(2), Tuple((Discrete(2), Discrete(2))))
    with pytest.raises(motet.BadAlgorithm, match=r"an action of Tuple\(.*\).*got int32\[\]"):
        motet.train(Careless(**TINY), env, total_timesteps=8)


def test_an_action_with_a_part_that_the_algorithm_cannot_choose_is_refused() -> None:
    class Narrow(motet.A2C):
        action_spaces = (Tuple, Discrete)

    spec = motet.Spec(Discrete(2), Tuple((Discrete(2), Box(-1.0, 1.0, (1,)))), 1)
    with pytest.raises(motet.BadAlgorithm, match=r"chooses Tuple or Discrete actions"):
        Narrow().bind(spec)


def test_a_list_serves_as_well_as_a_tuple() -> None:
    assert motet.PPO(hidden=[32, 16]) == motet.PPO(hidden=(32, 16))  # type: ignore[arg-type]
    assert hash(motet.DQN(hidden=[32])) == hash(motet.DQN(hidden=(32,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("widths", [[64, "64"], 64])
def test_widths_that_are_no_tuple_are_named(widths: Any) -> None:
    with pytest.raises(motet.BadOption, match=r"hidden must be a tuple of whole numbers such as \(64, 64\), got"):
        motet.PPO(hidden=widths)


def test_spaces_in_few_letters() -> None:
    space = Dict({"b": Tuple((MultiBinary((2,)), IMAGE)), "a": MultiDiscrete((2, 3))})
    assert short_space(space) == "{a: MultiDiscrete(2, 3), b: (binary[2], uint8[36,36,1])}"
