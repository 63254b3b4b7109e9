"""Networks read observations of every space, and images by convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.algorithms.actor_critic import ActorCritic
from motet.algorithms.networks import MLP, Network
from motet.algorithms.observations import Observed
from motet.algorithms.torsos import Torso
from motet.errors import BadAlgorithm
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

IMAGE = Box(0, 255, (36, 40, 3), "uint8")
STACK = Box(0, 255, (4, 36, 40), "uint8")
SMALL = Box(0, 255, (7, 7, 3), "uint8")
SPEED = Box(-1.0, 1.0, (2,))
close = {"rtol": 1e-5, "atol": 1e-5}


def observe(space: Space, *leading: int) -> Any:
    """Random observations."""
    draw = np.random.default_rng(7)

    def one(aval: jax.ShapeDtypeStruct) -> np.ndarray:
        return (draw.random((*leading, *aval.shape)) * (255 if aval.dtype == np.uint8 else 1)).astype(aval.dtype)

    return jax.tree.map(one, space.aval)


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (Discrete(3), 2, [0, 0, 1]),
        (MultiDiscrete((2, 3)), [1, 0], [0, 1, 1, 0, 0]),
        (MultiBinary((2, 2)), [[0, 1], [1, 1]], [0, 1, 1, 1]),
        (Box(-9.0, 9.0, (2, 2)), [[1.5, 2], [3, 4]], [1.5, 2, 3, 4]),
        (Box(0, 255, (1, 2, 1), "uint8"), [[[51], [255]]], [0.2, 1]),
        (Box(0, 255, (2,), "uint8"), [51, 255], [51, 255]),  # a vector is no image
        (Tuple((Discrete(2), Box(-9.0, 9.0, (1,)))), (1, [7.0]), [0, 1, 7]),
        (Dict({"b": Discrete(2), "a": Tuple((MultiBinary((1,)),))}), {"a": ([1],), "b": 0}, [1, 1, 0]),
    ],
    ids=str,
)
def test_every_observation_is_a_vector_of_floats(space: Space, observation: Any, expected: list[float]) -> None:
    leaves = jax.tree.map(lambda aval, value: np.asarray(value, aval.dtype), space.aval, observation)
    np.testing.assert_allclose(jax.jit(Observed(space).numbers)(leaves), expected, rtol=1e-6)
    several = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (3, 2, *leaf.shape)), leaves)
    wide = jax.jit(Observed(space).numbers)(several)
    assert wide.dtype == jnp.result_type(float)
    np.testing.assert_allclose(wide, np.broadcast_to(np.float32(expected), (3, 2, len(expected))), rtol=1e-6)


def test_images_have_their_channels_last_and_lie_between_0_and_1() -> None:
    stack = observe(STACK, 2)
    (image,) = jax.jit(Observed(STACK, (0,)).images)(stack)
    np.testing.assert_allclose(image, np.moveaxis(np.asarray(stack), 1, -1) / 255, rtol=1e-6)
    for space, shape in ((IMAGE, (2, 36, 40, 3)), (Box(0, 255, (36, 36), "uint8"), (2, 36, 36, 1))):
        (image,) = jax.eval_shape(Observed(space, (0,)).images, observe(space, 2))
        assert image.shape == shape


@pytest.mark.parametrize(
    ("space", "name", "pictures"),
    [
        (IMAGE, "auto", (0,)),
        (IMAGE, "mlp", ()),
        (SMALL, "auto", ()),
        (SMALL, "impala", (0,)),
        (Box(0.0, 1.0, (36, 36, 1)), "auto", ()),
        (Box(0.0, 1.0, (36, 36, 1)), "nature", (0,)),
        (Dict({"camera": IMAGE, "map": SMALL, "speed": SPEED}), "auto", (0,)),
        (Dict({"camera": IMAGE, "map": SMALL, "speed": SPEED}), "impala", (0, 1)),
        (SPEED, "auto", ()),
    ],
)
def test_what_is_looked_at_as_an_image(space: Space, name: Any, pictures: tuple[int, ...]) -> None:
    torso = Torso.make(space, name)
    assert torso.view.pictures == pictures
    assert (torso.module is None) == (not pictures)


@pytest.mark.parametrize(("space", "name"), [(SPEED, "nature"), (SPEED, "impala"), (SMALL, "nature")])
def test_a_torso_without_images_to_look_at_is_refused(space: Space, name: Any) -> None:
    with pytest.raises(BadAlgorithm, match=rf"torso '{name}' looks at images.*but this environment shows Box"):
        Torso.make(space, name)


def test_the_nature_network_has_the_published_layers() -> None:
    atari = Torso.make(Box(0, 255, (84, 84, 4), "uint8"), "auto")
    layers = jax.eval_shape(atari.init, jax.random.key(0))["params"]["Nature_0"]
    assert {name: layer["kernel"].shape for name, layer in layers.items()} == {
        "Convolution_0": (8, 8, 4, 32),
        "Convolution_1": (4, 4, 32, 64),
        "Convolution_2": (3, 3, 64, 64),
        "Dense_0": (7 * 7 * 64, 512),
    }


def test_the_residual_network_has_the_published_layers() -> None:
    atari = Torso.make(Box(0, 255, (84, 84, 4), "uint8"), "impala")
    layers = jax.eval_shape(atari.init, jax.random.key(0))["params"]["Residual_0"]
    channels = [layers[f"Convolution_{index}"]["kernel"].shape[-1] for index in range(15)]
    assert channels == [16] * 5 + [32] * 10
    assert layers["Dense_0"]["kernel"].shape == (11 * 11 * 32, 256)


def some_numbers(avals: Any) -> Any:
    """Parameters for a test that is not about how they begin: making orthogonal ones takes seconds."""
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda aval: (draw.normal(size=aval.shape) * 0.05).astype(aval.dtype), avals)


@pytest.mark.parametrize("name", ["nature", "impala"])
def test_a_torso_takes_any_leading_axes(name: Any) -> None:
    space = Dict({"camera": Box(0, 255, (36, 36, 1), "uint8"), "speed": SPEED})
    torso = Torso.make(space, name)
    params, observation = some_numbers(jax.eval_shape(torso.init, jax.random.key(0))), observe(space, 2, 2)

    @jax.jit
    def run(params: Any, observation: Any) -> tuple[jax.Array, jax.Array]:
        return torso(params, observation), jax.vmap(jax.vmap(lambda one: torso(params, one)))(observation)

    together, mapped = run(params, observation)
    assert together.shape == (2, 2, {"nature": 512, "impala": 256}[name] + 2)
    np.testing.assert_allclose(together, mapped, **close)
    assert np.asarray(together[..., :-2]).std() > 1e-3
    np.testing.assert_array_equal(together[..., -2:], observation["speed"])


def test_hidden_layers_follow_convolutions_only_where_other_numbers_join() -> None:
    assert Torso.make(SPEED, "auto").layers((8,)) == (8,)
    assert Torso.make(IMAGE, "auto").layers((8,)) == ()
    assert Torso.make(Dict({"camera": IMAGE, "speed": SPEED}), "auto").layers((8,)) == (8,)


def test_actor_and_critic_share_what_looks_at_images() -> None:
    networks = ActorCritic.make(Box(0, 255, (36, 36, 1), "uint8"), Discrete(3), (8,), "tanh")
    params = jax.eval_shape(networks.init, jax.random.key(0))
    assert {leaf.shape for leaf in jax.tree.leaves((params.actor, params.critic))} == {(512, 3), (3,), (512, 1), (1,)}
    jaxpr = jax.make_jaxpr(networks.policy_and_value)(params, networks.torso.view.blank)
    assert str(jaxpr).count("conv_general_dilated[") == 3


def test_without_images_actor_and_critic_share_nothing() -> None:
    networks = ActorCritic.make(SPEED, Discrete(3), (8,), "tanh")
    params = some_numbers(jax.eval_shape(networks.init, jax.random.key(0)))
    assert params.torso == ()

    @jax.jit
    def run(observation: jax.Array) -> tuple[Any, Any]:
        apart = networks.policy(params, observation), networks.value(params, observation)
        return networks.policy_and_value(params, observation), apart

    together, apart = run(observe(SPEED, 5))
    jax.tree.map(np.testing.assert_array_equal, together, apart)


def test_a_network_with_a_torso_has_parameters_for_both() -> None:
    space = Box(0, 255, (8, 8, 1), "uint8")
    network = Network(MLP((), 5), space, "impala")
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert set(params) == {"torso", "module"}
    assert jax.eval_shape(network, params, observe(space, 3)).shape == (3, 5)
    assert set(jax.eval_shape(Network(MLP((4,), 5), space).init, jax.random.key(0))) == {"params"}
