"""Law 3: motet's fused PPO computes what an independent straight-line loop computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from benchmarks import handwritten_ppo as handwritten
from motet.envs.cartpole import CartPole
from tests.sharing import sharing

ENVS, STEPS, ITERATIONS = 8, 16, 6
TOLERANCE = {"float64": {"rtol": 1e-9, "atol": 1e-12}, "float32": {"rtol": 1e-3, "atol": 1e-5}}
SHARED = (
    "update_epochs", "num_minibatches", "discount", "gae_lambda", "clip", "value_weight", "entropy_weight",
    "max_gradient_norm",
)  # fmt: skip


class ShortCartPole(CartPole):
    """Most of its episodes are cut off, so that learning depends on what is made of truncation."""

    time_limit = 12


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((env, seed), id=f"{env.__name__}-{seed}", marks=sharing(f"{env.__name__}-{seed}"))
        for env, seed in ((CartPole, 0), (CartPole, 7), (ShortCartPole, 3))
    ],
)
def both(request):
    """(motet's learner state, the hand-written one) after the same iterations, and the first parameters of both."""
    env, seed = request.param
    options = {"num_envs": ENVS, "num_steps": STEPS, "learning_rate": 3e-3, "hidden": (16, 16)}
    algorithm = motet.PPO(**options)
    total = ENVS * STEPS * ITERATIONS
    ours = motet.train(algorithm, env(), plan=motet.anakin(), total_timesteps=total, seed=seed).state
    options |= {name: getattr(algorithm, name) for name in SHARED}
    settings = handwritten.Settings(**options, time_limit=env.time_limit, iterations=ITERATIONS)
    root = jax.random.key(seed)
    first = handwritten.init(settings, root)
    params = jax.device_get(first.params)  # before the buffers are donated
    state, _ = handwritten.make_train(settings, ITERATIONS)(first, root, jnp.uint32(0))
    return ours, state, params


def assert_same(ours, theirs):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert [leaf.shape for leaf in ours] == [leaf.shape for leaf in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, **TOLERANCE[jnp.result_type(float).name])


def test_fused_parameters_equal_handwritten(both):
    ours, theirs, _ = both
    assert_same(ours.params, theirs.params)


def test_fused_optimiser_state_equals_handwritten(both):
    ours, theirs, _ = both
    assert_same(ours.optimiser, theirs.optimiser)


def test_every_parameter_has_moved(both):
    """Equality of two runs that never left their first parameters would show nothing."""
    _, theirs, first = both
    moved = jax.tree.map(lambda after, before: np.abs(after - before).max(), theirs.params, first)
    assert min(jax.tree.leaves(moved)) > 1e-3
