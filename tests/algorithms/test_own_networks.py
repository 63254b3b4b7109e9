"""Networks of somebody's own, in every algorithm and under every plan; what is wrong with one is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.algorithms import activations
from motet.algorithms.networks import MLP
from motet.algorithms.own_networks import OwnNetwork
from motet.flow.spaces import Box, Dict, Discrete


class Tower(nn.Module):
    """Written for one vector: it would not do for several."""

    outputs: int
    width: int = 3

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        assert features.ndim == 1
        return nn.Dense(self.outputs, name="last")(nn.gelu(nn.Dense(self.width, name="first")(features)))


class Looking(nn.Module):
    """Sees an observation as it is, and an action if there is one."""

    outputs: int

    @nn.compact
    def __call__(self, observation: dict[str, jax.Array], *action: jax.Array) -> jax.Array:
        assert observation["camera"].dtype == np.uint8 and observation["camera"].shape == (4, 4, 1)
        seen = nn.Conv(2, (2, 2), strides=2)(observation["camera"] / 255).reshape(-1)
        return nn.Dense(self.outputs)(jnp.concatenate([seen, observation["speed"], *action]))


def tower(spec: motet.Spec, outputs: int) -> nn.Module:
    assert isinstance(spec.observation_space, Box)
    return Tower(outputs, width=5)


def values_of_two(task: motet.Spec) -> nn.Module:
    """The spec under another name."""
    assert isinstance(task.action_space, Discrete)
    return nn.Sequential([nn.Dense(3), nn.relu, nn.Dense(task.action_space.n)])


ROLLOUTS = {"num_envs": 2, "num_steps": 4}
REPLAY = {"num_envs": 2, "batch_size": 4, "buffer_size": 20, "learning_starts": 2, "gradient_steps": 1}
BOTH: dict[str, Any] = {"policy_network": Tower, "value_network": tower}
CONTINUOUS: dict[str, Any] = {"policy_network": Tower, "q_network": tower}
CASES: dict[str, tuple[motet.Algorithm, str, int]] = {
    "ppo": (
        motet.PPO(**ROLLOUTS, **BOTH, num_minibatches=2, update_epochs=1, core="gru", core_size=3),
        "CartPole-v1",
        2,
    ),
    "batch_ppo": (motet.BatchPPO(**ROLLOUTS, **BOTH, update_epochs=1), "Pendulum-v1", 1),
    "a2c": (motet.A2C(**ROLLOUTS, **BOTH), "CartPole-v1", 2),
    "impala": (motet.IMPALA(**ROLLOUTS, **BOTH), "CartPole-v1", 2),
    "dqn": (motet.DQN(**REPLAY, n_step=1, q_network=Tower, dueling=True), "CartPole-v1", 3),
    "ddpg": (motet.DDPG(**REPLAY, **CONTINUOUS), "Pendulum-v1", 1),
    "td3": (motet.TD3(**REPLAY, **CONTINUOUS), "Pendulum-v1", 1),
    "sac": (motet.SAC(**REPLAY, **CONTINUOUS), "Pendulum-v1", 2),
    "sac of discrete actions": (motet.SAC(**REPLAY, **CONTINUOUS), "CartPole-v1", 2),
}


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_takes_them(name: str) -> None:
    algorithm, env, outputs = CASES[name]
    graph = motet.trace(algorithm, motet.make(env), iterations=2)
    leaves = {path: shape for var in graph.variables.values() for path, shape in shapes(var)}
    first = next(shape for path, shape in leaves.items() if path.endswith("['last']['bias']"))
    assert first == (outputs,)  # the policy's are before the value's


def shapes(var: Any) -> Any:
    return zip(var.paths(), (aval.shape for aval in var.avals), strict=True)


CAMERA = Dict({"camera": Box(0, 255, (4, 4, 1), "uint8"), "speed": Box(-1.0, 1.0, (2,))})


@pytest.mark.parametrize(
    ("algorithm", "actions"),
    [
        (motet.A2C(torso="none", policy_network=Looking, value_network=Looking), Discrete(3)),
        (motet.DQN(torso="none", q_network=Looking), Discrete(3)),
        (motet.SAC(torso="none", policy_network=Looking, q_network=Looking), Box(-1.0, 1.0, (2,))),
    ],
    ids=lambda each: type(each).__name__,
)
def test_without_a_torso_they_see_observations_as_they_are(algorithm: Any, actions: Any) -> None:
    bound = algorithm.bind(motet.Spec(CAMERA, actions, 10))
    blank = jax.tree.map(lambda aval: jnp.zeros((5, *aval.shape), aval.dtype), CAMERA.aval)

    def look(key: jax.Array) -> Any:
        state = bound.init(key)
        keys = jax.random.split(key, 5)
        decided = jax.vmap(lambda seen, key: bound.act(bound.policy(state), (), seen, key).action)(blank, keys)
        if isinstance(algorithm, motet.SAC):
            return decided, bound.choice.taken(state.online.params.critics, blank, decided)
        return decided, bound.networks.value(state.params, blank) if isinstance(algorithm, motet.A2C) else 0

    decided, _ = jax.eval_shape(look, jax.random.key(0))
    assert decided.shape == (5, *actions.aval.shape)


WHOLE = {"update_epochs": 1, "num_minibatches": 1, "normalize_advantage": False}
PLANS = {
    "ppo": (motet.PPO(num_envs=2, num_steps=2, **WHOLE, **BOTH), (motet.anakin(2), motet.coarse(2), motet.central(2))),
    "dqn": (motet.DQN(**REPLAY, n_step=1, q_network=values_of_two), (motet.pearl(2, lag=0),)),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_learn_the_same_with_them(name: str) -> None:
    algorithm, plans = PLANS[name]
    report = motet.check_algorithm(algorithm, "CartPole-v1", plans={each.name: each for each in plans}, iterations=2)
    assert report.ok and not any(each.refused for each in report.plans), str(report)


def test_a_network_is_mapped_over_all_leading_axes() -> None:
    own = OwnNetwork(Tower(2), "policy_network", 2)
    params = own.init(jax.random.key(0), jnp.zeros(4))
    features = jax.random.normal(jax.random.key(1), (3, 5, 4))
    wide = own.apply(params, features)
    assert wide.shape == (3, 5, 2)
    np.testing.assert_allclose(wide[1, 2], Tower(2).apply(params, features[1, 2]), rtol=1e-5)


def test_half_precision_inside_is_nobody_elses_business() -> None:
    own = OwnNetwork(nn.Dense(2, dtype=jnp.bfloat16), "policy_network", 2)
    params = own.init(jax.random.key(0), jnp.zeros(4))
    assert own.apply(params, jnp.ones(4)).dtype == jnp.float32
    assert params["params"]["kernel"].dtype == jnp.float32


def test_algorithms_with_equal_networks_are_equal() -> None:
    def one(width: int) -> motet.PPO:
        return motet.PPO(policy_network=Tower(2, width), value_network=nn.Sequential([nn.Dense(width), nn.Dense(1)]))

    assert one(3) == one(3) and hash(one(3)) == hash(one(3))
    assert one(3) != one(4)
    assert one(3).value_network.layers == (nn.Dense(3), nn.Dense(1))  # type: ignore[union-attr]


class Normed(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        return nn.Dense(self.outputs)(nn.BatchNorm(use_running_average=True)(features))


class Both(nn.Module):
    @nn.compact
    def __call__(self, features: jax.Array) -> tuple[jax.Array, jax.Array]:
        return features, features


def broken(spec: motet.Spec) -> nn.Module:
    raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Tower(7), ["policy_network: Tower should give an array of shape (2,)", "but gives shape (7,)", "2 outputs"]),
        (lambda spec: Both(), ["Both should give an array of shape (2,)", "a tuple"]),
        (lambda spec: 3, ["policy_network must be a flax.linen module", "gave 3"]),
        (broken, ["policy_network: broken raised ZeroDivisionError: no", "spec, outputs"]),
        (Normed, ["nothing but parameters", "batch_stats", "LayerNorm"]),
        (nn.Dropout(0.5, deterministic=False), ["policy_network: Dropout failed on one observation, float32[4]"]),
        (nn.Conv, ["policy_network: Conv raised TypeError", "features"]),
        ("tests.algorithms.test_own_networks:Towr", ["Did you mean 'tower'?"]),
        ("tests.algorithms.test_own_networks:ROLLOUTS", ["policy_network must be", "is {'num_envs'"]),
    ],
)
def test_what_is_wrong_with_a_network_is_said_before_anything_runs(given: Any, words: list[str]) -> None:
    with pytest.raises(motet.MotetError) as caught:
        motet.train(motet.A2C(policy_network=given, **ROLLOUTS), "CartPole-v1", total_timesteps=8)
    for each in words:
        assert each in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy_network": 3}, "policy_network must be a flax.linen module, a class or function that makes one"),
        ({"policy_network": "Tower"}, "or a name such as my_nets.py:Tower, got 'Tower'"),
        ({"value_network": int}, "value_network must be a flax.linen module"),
        ({"policy_network": Tower(np.zeros(2))}, "hashable"),
        ({"optimizer": 3}, "optimizer must be an optax.GradientTransformation"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, a schedule"),
        ({"learning_rate": [1e-3]}, "learning_rate must be a number, a schedule"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0"),
    ],
)
def test_what_can_be_no_network_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(motet.BadOption) as caught:
        motet.PPO(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"torso": "none", "policy_network": Tower}, "Give a value_network of your own, or choose another torso"),
        ({"torso": "none", **BOTH, "core": "gru"}, "The core 'gru' remembers features"),
    ],
)
def test_what_needs_features_has_a_torso(options: dict[str, Any], words: str) -> None:
    with pytest.raises(motet.BadAlgorithm, match=words):
        motet.trace(motet.PPO(**options), motet.make("CartPole-v1"))


@pytest.mark.parametrize("name", activations.NAMES)
def test_activations_are_what_their_names_say(name: Any) -> None:
    expected: dict[str, Callable[[np.ndarray], Any]] = {
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
        "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "silu": lambda x: x / (1 + np.exp(-x)),
        "softplus": lambda x: np.log1p(np.exp(x)),
    }
    ones = {"kernel": jnp.ones((1, 1)), "bias": jnp.zeros(1)}
    params = {"params": {"Dense_0": ones, "Dense_1": ones}}
    values = np.float32([[-2.0], [-0.5], [0.0], [0.7], [3.0]])
    out = MLP((1,), 1, name).apply(params, values)
    np.testing.assert_allclose(np.asarray(out), expected[name](values), rtol=1e-4, atol=1e-5)
    assert motet.SAC(activation=name).activation == name
