"""Law 3: motet's fused PPO computes what an independent straight-line loop computes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import handwritten_ppo as handwritten

import motet

ENVS, STEPS, ITERATIONS = 8, 16, 6
TOLERANCE = {"float64": {"rtol": 1e-9, "atol": 1e-12}, "float32": {"rtol": 1e-3, "atol": 1e-5}}


@pytest.fixture(scope="module", params=[0, 7], ids=lambda seed: f"seed {seed}")
def both(request):
    """(motet's learner state, the hand-written one) after the same iterations from the same seed."""
    options = {"num_envs": ENVS, "num_steps": STEPS, "learning_rate": 3e-3, "hidden": (16, 16)}
    algorithm = motet.PPO(**options)
    total = ENVS * STEPS * ITERATIONS
    ours = motet.train(algorithm, "CartPole-v1", plan=motet.anakin(), total_timesteps=total, seed=request.param).state
    same = ("update_epochs", "num_minibatches", "discount", "gae_lambda", "clip", "value_weight", "entropy_weight")
    options |= {name: getattr(algorithm, name) for name in (*same, "max_gradient_norm")}
    settings = handwritten.Settings(**options, iterations=ITERATIONS)
    root = jax.random.key(request.param)
    state, _ = handwritten.make_train(settings, ITERATIONS)(handwritten.init(settings, root), root, jnp.uint32(0))
    return ours, state


def _assert_same(ours, theirs):
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert [leaf.shape for leaf in ours] == [leaf.shape for leaf in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, **TOLERANCE[jnp.result_type(float).name])


def test_fused_parameters_equal_handwritten(both):
    ours, theirs = both
    _assert_same(ours.params, theirs.params)


def test_fused_optimiser_state_equals_handwritten(both):
    ours, theirs = both
    _assert_same(ours.optimiser, theirs.optimiser)


def test_handwritten_loop_learned_something(both):
    """Equality of two runs that never left their first parameters would show nothing."""
    _, theirs = both
    untrained = handwritten.init(handwritten.Settings(hidden=(16, 16)), jax.random.key(0)).params
    last = theirs.params[0]["params"]["Dense_2"]["kernel"]
    assert np.abs(last - untrained[0]["params"]["Dense_2"]["kernel"]).max() > 0.01
