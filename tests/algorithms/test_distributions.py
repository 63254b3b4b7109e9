"""Distributions agree with SciPy's, and their samples with themselves."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from motet.algorithms.actions import distribution, first_log_std, width
from motet.algorithms.distributions import Bernoullis, Categorical, Categoricals, DiagonalNormal, Factored
from motet.errors import BadAlgorithm
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from tests.sharing import sharing

NVEC = (2, 4, 3)
SPACES: dict[str, Space] = {
    "discrete": Discrete(5),
    "vector": Box(-1.0, 1.0, (3,)),
    "matrix": Box(-1.0, 1.0, (2, 3)),
    "number": Box(-1.0, 1.0, ()),
    "half": Box(-1.0, 1.0, (2,), "float16"),
    "multi-discrete": MultiDiscrete(NVEC),
    "multi-discrete-even": MultiDiscrete((3, 3)),
    "multi-binary": MultiBinary((3,)),
    "binary-matrix": MultiBinary((2, 2)),
    "dict": Dict({"b": Discrete(3), "a": Box(-1.0, 1.0, (2, 1))}),
    "nested": Tuple((MultiDiscrete(NVEC), Dict({"x": MultiBinary((2,)), "y": Box(-1.0, 1.0, (1,))}), Discrete(2))),
}
every_space = pytest.mark.parametrize("name", [pytest.param(name, marks=sharing(f"space-{name}")) for name in SPACES])
COUNT = 20_000
KEY = jax.random.key(0, impl="unsafe_rbg")  # quick to compile
close = {"rtol": 2e-5, "atol": 2e-6}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(np.asarray(logits, np.float64))
    return weights / weights.sum(-1, keepdims=True)


@functools.cache
def facts(name: str) -> dict[str, Any]:
    """What one distribution over a space says, and another; in one compiled function, for operations alone are slow."""
    space = SPACES[name]

    @jax.jit
    def run(out: jax.Array, other_out: jax.Array, log_std: Any, other_log_std: Any) -> dict[str, Any]:
        one = distribution(space, jnp.broadcast_to(out, (COUNT // 2, 2, *out.shape)), log_std)
        other = distribution(space, jnp.broadcast_to(other_out, (COUNT // 2, 2, *out.shape)), other_log_std)
        alone = distribution(space, out, log_std)
        action = one.sample(KEY)
        return {
            "actions": (action, one.mode()),
            "log_p": one.log_prob(action),
            "log_q": other.log_prob(action),
            "mapped": jax.vmap(jax.vmap(alone.log_prob))(action),
            "entropy": one.entropy(),
            "kl": one.kl(other),
            "itself": one.kl(one),
            "mode": one.log_prob(one.mode()),
        }

    first = first_log_std(space)
    log_stds = (jax.tree.map(lambda zeros, seed=seed: 0.3 * numbers(*zeros.shape, seed=seed), first) for seed in (8, 9))
    return jax.tree.map(np.asarray, run(numbers(width(space)), numbers(width(space), seed=1), *log_stds))


@every_space
def test_actions_have_the_shapes_and_types_of_their_space(name: str) -> None:
    found, aval = facts(name), SPACES[name].aval
    for action in found["actions"]:
        assert jax.tree.structure(action) == jax.tree.structure(aval)
        for leaf, its in zip(jax.tree.leaves(action), jax.tree.leaves(aval), strict=True):
            assert (leaf.shape, leaf.dtype) == ((COUNT // 2, 2, *its.shape), its.dtype)
    assert {found[each].shape for each in ("log_p", "entropy", "kl")} == {(COUNT // 2, 2)}


@every_space
def test_a_mapped_distribution_is_one_with_leading_axes(name: str) -> None:
    """Acting maps `act` over environments; learning hands over whole batches."""
    np.testing.assert_allclose(facts(name)["mapped"], facts(name)["log_p"], **close)


@every_space
def test_entropy_and_divergence_are_means_of_log_probabilities(name: str) -> None:
    """H = -E[log p], KL(p || q) = E[log p - log q], over samples of p."""
    found = facts(name)
    for exact, drawn in ((found["entropy"], -found["log_p"]), (found["kl"], found["log_p"] - found["log_q"])):
        drawn = drawn.astype(np.float64)
        assert abs(drawn.mean() - exact[0, 0]) < 5 * drawn.std() / np.sqrt(COUNT) + 1e-6
    np.testing.assert_allclose(found["itself"], 0, atol=1e-6)
    assert found["kl"].min() > 1e-3


@every_space
def test_the_mode_is_at_least_as_likely_as_any_sample(name: str) -> None:
    assert (facts(name)["mode"] >= facts(name)["log_p"] - 1e-3).all()


def test_categorical_equals_scipys() -> None:
    logits = numbers(5)
    p = softmax(logits)
    made, theirs = Categorical(jnp.asarray(logits)), scipy.stats.rv_discrete(values=(np.arange(5), p / p.sum()))
    np.testing.assert_allclose(jax.vmap(made.log_prob)(jnp.arange(5)), theirs.logpmf(np.arange(5)), **close)
    np.testing.assert_allclose(made.entropy(), theirs.entropy(), **close)
    q = softmax(numbers(5, seed=1))
    other = Categorical(jnp.log(jnp.asarray(q, jnp.float32)))
    np.testing.assert_allclose(made.kl(other), scipy.stats.entropy(p, q), **close)


def test_normal_equals_scipys() -> None:
    mean, log_std, action = numbers(2, 3), numbers(2, 3, seed=1), numbers(2, 3, seed=2)
    made = DiagonalNormal(jnp.asarray(mean), jnp.asarray(log_std), axes=2)
    theirs = scipy.stats.norm(mean, np.exp(log_std))
    np.testing.assert_allclose(made.log_prob(jnp.asarray(action)), theirs.logpdf(action).sum(), **close)
    np.testing.assert_allclose(made.entropy(), theirs.entropy().sum(), **close)


def test_bernoullis_equal_scipys() -> None:
    logits = numbers(4)
    made, theirs = Bernoullis(jnp.asarray(logits)), scipy.stats.bernoulli(1 / (1 + np.exp(-logits.astype(float))))
    for bits in ([0, 1, 1, 0], [1, 1, 1, 1]):
        np.testing.assert_allclose(made.log_prob(jnp.array(bits, jnp.int8)), theirs.logpmf(bits).sum(), **close)
    np.testing.assert_allclose(made.entropy(), theirs.entropy().sum(), **close)


def test_categoricals_of_several_widths_are_categoricals_side_by_side() -> None:
    logits, action = numbers(7, sum(NVEC)), np.array([1, 3, 0], np.int32)
    each = [Categorical(jnp.asarray(part)) for part in np.split(logits, np.cumsum(NVEC)[:-1], -1)]
    made = Categoricals.of(jnp.asarray(logits), NVEC)
    np.testing.assert_allclose(made.entropy(), sum(one.entropy() for one in each), **close)
    together = made.log_prob(jnp.broadcast_to(action, (7, 3)))
    alone = sum(one.log_prob(jnp.full(7, choice)) for one, choice in zip(each, action, strict=True))
    np.testing.assert_allclose(together, alone, **close)


def test_what_a_narrow_number_cannot_be_is_never_drawn_and_spoils_no_gradient() -> None:
    made = Categoricals.of(jnp.zeros((3000, sum(NVEC))), NVEC)
    samples = np.asarray(made.sample(KEY))
    assert (samples.max(0) == np.array(NVEC) - 1).all()
    gradient = jax.grad(lambda logits: Categoricals.of(logits, NVEC).entropy())(jnp.asarray(numbers(sum(NVEC))))
    assert np.isfinite(gradient).all()


def test_samples_are_as_frequent_as_they_should_be() -> None:
    space = Dict({"d": Discrete(4), "m": MultiDiscrete((2, 3)), "b": MultiBinary((2,)), "c": Box(-1.0, 1.0, (2,))})
    out, std, near = numbers(width(space)), np.array([0.5, 2.0], np.float32), {"atol": 5 * 0.5 / np.sqrt(COUNT)}

    @jax.jit
    def run(out: jax.Array) -> Any:
        log_std = {"d": None, "m": None, "b": None, "c": np.log(std)}
        return distribution(space, jnp.broadcast_to(out, (COUNT, *out.shape)), log_std).sample(KEY)

    drawn = jax.tree.map(np.asarray, run(out))
    bits, mean, logits, first, second = np.split(out, np.cumsum([2, 2, 4, 2]))  # by name: b, c, d, m
    for column, its in ((drawn["d"], logits), (drawn["m"][:, 0], first), (drawn["m"][:, 1], second)):
        np.testing.assert_allclose(np.bincount(column, minlength=len(its)) / COUNT, softmax(its), **near)
    np.testing.assert_allclose(drawn["b"].mean(0), 1 / (1 + np.exp(-bits)), **near)
    np.testing.assert_allclose((drawn["c"].mean(0) - mean) / std, 0, atol=5 / np.sqrt(COUNT))
    np.testing.assert_allclose(drawn["c"].std(0) / std, 1, atol=5 / np.sqrt(COUNT))
    # Independent: each part has a key of its own.
    assert abs(np.corrcoef(drawn["b"][:, 0], drawn["c"][:, 0])[0, 1]) < 5 / np.sqrt(COUNT)


def test_a_product_of_parts_adds_up() -> None:
    parts = {"a": Categorical(jnp.asarray(numbers(3))), "b": DiagonalNormal(jnp.asarray(numbers(2)), jnp.zeros(2))}
    made, action = Factored(parts), {"a": jnp.int32(1), "b": jnp.ones(2)}
    apart = parts["a"].log_prob(action["a"]) + parts["b"].log_prob(action["b"])
    np.testing.assert_allclose(made.log_prob(action), apart, **close)


def test_whole_numbers_in_a_box_are_no_continuous_action() -> None:
    with pytest.raises(BadAlgorithm, match=r"drawn as real numbers.*Box\(shape=\(2,\), dtype=int32\)"):
        width(Tuple((Discrete(2), Box(0, 5, (2,), "int32"))))
