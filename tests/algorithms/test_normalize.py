"""Streaming statistics: they are those of all values together, the same under every plan, and part of the policy."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.algorithms.descent import Learner
from motet.algorithms.normalize import Moments, Statistics, measure, merge, normalise, nothing_seen
from motet.algorithms.observations import Observed
from motet.algorithms.proximal import Scaled
from tests.laws.cases import ALGORITHMS, assert_close, learner, run, state, traced

SCALED = ALGORITHMS["ppo-scaled"]


def moments_of(values: np.ndarray) -> Moments:
    """Of [n, ...] values, as the definition says."""
    mean = values.mean(0)
    return Moments(jnp.asarray(float(len(values))), jnp.asarray(mean), jnp.asarray(((values - mean) ** 2).sum(0)))


@pytest.mark.parametrize("sizes", [(1, 1), (3, 40), (100, 7)])
def test_merge_gives_the_moments_of_the_concatenation(sizes: tuple[int, int]) -> None:
    chance = np.random.default_rng(0)
    one, other = (
        chance.normal(place, scale, (size, 3)) for place, scale, size in zip((5, -2), (1, 4), sizes, strict=True)
    )
    assert_close(merge(moments_of(one), moments_of(other)), moments_of(np.concatenate([one, other])))


def test_merge_with_nothing_changes_nothing() -> None:
    seen = moments_of(np.random.default_rng(1).normal(size=(10, 3)))
    nothing = nothing_seen(jax.ShapeDtypeStruct((3,), jnp.result_type(float)))
    assert_close(merge(seen, nothing), seen)
    assert_close(merge(nothing, seen), seen)
    assert_close(merge(nothing, nothing), nothing)


def test_many_small_batches_far_from_zero_keep_their_variance() -> None:
    """Sums of squares would lose it to rounding."""
    values = 1_000 + np.random.default_rng(2).normal(size=(200, 4, 5, 3))
    seen = nothing_seen(jax.ShapeDtypeStruct((3,), jnp.result_type(float)))
    for batch in values:
        seen = merge(seen, measure(jnp.asarray(batch), 20))
    np.testing.assert_allclose(seen.deviation, values.reshape(-1, 3).std(0), rtol=1e-3)
    assert float(seen.count) == 4_000


def test_normalised_values_have_mean_0_and_variance_1_within_the_clip() -> None:
    values = jnp.asarray(np.random.default_rng(3).normal(7, 3, (50, 20, 2)))
    seen = measure(values, 1_000)
    scaled = normalise(seen, values, clip=100.0)
    np.testing.assert_allclose(scaled.mean((0, 1)), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std((0, 1)), 1, rtol=1e-4)
    assert float(jnp.abs(normalise(seen, values, clip=1.5)).max()) == 1.5
    assert_close(normalise(seen, values[0, 0], clip=100.0), scaled[0, 0])


def test_before_anything_was_seen_values_are_only_clipped() -> None:
    nothing = nothing_seen(jax.ShapeDtypeStruct((2,), jnp.result_type(float)))
    np.testing.assert_allclose(normalise(nothing, jnp.asarray([0.5, -70.0]), clip=10.0), [0.5, -10.0])


def test_rewards_are_scaled_and_not_shifted() -> None:
    rewards = np.random.default_rng(4).normal(5, 2, (30, 10))
    statistics = Statistics(None, measure(jnp.asarray(rewards), 300))
    size = np.sqrt(np.square(rewards).mean())
    np.testing.assert_allclose(statistics.scale(jnp.asarray(rewards)), rewards / size, rtol=1e-4)
    assert float(statistics.scale(jnp.asarray(1e6))) == 10.0


def test_a_reward_that_never_changes_keeps_its_sign_and_becomes_1() -> None:
    for reward in (1.0, -0.01, 300.0):
        rewards = jnp.full((30, 10), reward)
        np.testing.assert_allclose(Statistics(None, measure(rewards, 300)).scale(rewards), np.sign(reward), rtol=1e-2)


def test_what_counts_is_not_normalised() -> None:
    float_type = jnp.result_type(float)
    space = {"lives": jax.ShapeDtypeStruct((2, 2), jnp.int32), "speed": jax.ShapeDtypeStruct((3,), float_type)}
    first = Statistics.start(space, observations=True, rewards=False)
    chance = np.random.default_rng(5)
    seen = {
        "lives": jnp.asarray(chance.integers(0, 9, (6, 4, 2, 2)), jnp.int32),
        "speed": jnp.asarray(chance.normal(3, 2, (6, 4, 3)), float_type),
    }
    statistics = first.merge(first.measure(seen, jnp.zeros((6, 4)), 24))
    assert len(jax.tree.leaves(statistics)) == 3
    observed = statistics.observe(seen, 10.0)
    np.testing.assert_array_equal(observed["lives"], seen["lives"])
    np.testing.assert_allclose(observed["speed"].mean((0, 1)), 0, atol=1e-4)


PLANS = [motet.coarse(2, learners=2), motet.fine(2)]


@pytest.fixture(scope="module")
def fused() -> tuple[list[np.ndarray], list[np.ndarray]]:
    graph = traced(SCALED, motet.anakin())
    outcome, watcher = run(graph, motet.anakin())
    return learner(graph, outcome), watcher.seen


@pytest.mark.parametrize("plan", PLANS, ids=["coarse-2-sharded", "fine-2"])
def test_statistics_and_what_is_learned_do_not_depend_on_the_plan(fused, plan: motet.Plan) -> None:
    graph = traced(SCALED, plan)
    outcome, watcher = run(graph, plan)
    assert_close(learner(graph, outcome), fused[0])
    assert_close(watcher.seen, fused[1])


def test_statistics_that_no_collective_spans_are_refused() -> None:
    plan = motet.central(2, per_replica=("gradient",))
    with pytest.raises(motet.BadPlan, match="measure"):
        motet.check(traced(SCALED, plan), plan)


def test_statistics_are_those_of_every_step_of_the_run() -> None:
    """The rewards of CartPole are 1 and its episodes start around 0; counts tell that no step is missing."""
    graph = traced(SCALED, motet.anakin(), iterations=3)
    last = state(graph, run(graph, motet.anakin(), iterations=3)[0], "learner")
    observed, rewarded = last.statistics.observation, last.statistics.reward
    assert float(observed.count) == float(rewarded.count) == 3 * 8 * 8
    assert observed.mean.shape == observed.m2.shape == (4,)
    assert (observed.m2 > 0).all()
    np.testing.assert_allclose([rewarded.mean, rewarded.m2], [1, 0], atol=1e-6)


def test_without_normalisation_the_state_is_the_plain_one() -> None:
    graph = traced(ALGORITHMS["ppo"], motet.anakin())
    assert type(graph.variables["learner"].unpack(graph.variables["learner"].avals)) is Learner
    assert "measure" not in graph.sites() and "absorb" not in graph.sites()


@pytest.fixture(scope="module")
def policy() -> motet.Policy:
    return motet.train(SCALED, "CartPole-v1", motet.anakin(), total_timesteps=640).policy


def test_a_policy_is_saved_and_loaded_with_its_statistics(policy: motet.Policy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    loaded = motet.Policy.load(tmp_path, motet.PPO)
    assert isinstance(loaded.params, Scaled)
    assert float(loaded.params.statistics.observation.count) == 640
    assert jax.tree.structure(loaded.params) == jax.tree.structure(policy.params)
    for ours, theirs in zip(jax.tree.leaves(loaded.params), jax.tree.leaves(policy.params), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_evaluation_uses_the_statistics_and_leaves_them_as_they_are(policy: motet.Policy) -> None:
    before = jax.tree.map(np.array, policy.params)
    score = motet.evaluate(policy, motet.make("CartPole-v1"), episodes=8)
    for ours, theirs in zip(jax.tree.leaves(policy.params), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    blind = Statistics.start(policy.algorithm.spec.observation_space.aval, observations=True, rewards=True)
    other = motet.Policy(policy.algorithm, dataclasses.replace(policy.params, statistics=blind))
    assert (score.lengths != motet.evaluate(other, motet.make("CartPole-v1"), episodes=8).lengths).any()


def test_pictures_are_normalised_pixel_by_pixel() -> None:
    """What never changes becomes 0, and what does stands out; the network does not scale it once more."""
    space = motet.Box(0, 255, (3, 40, 40), "uint8")
    pictures = np.full((6, 2, 3, 40, 40), 90, np.uint8)
    pictures[:3, :, :, 5, 7] = 200
    pictures = jnp.asarray(pictures)
    start = Statistics.start(space.aval, observations=True, rewards=False)
    seen = start.measure(pictures, jnp.zeros((6, 2)), 12)
    looked = seen.observe(pictures, 10.0)
    assert looked.dtype == jnp.result_type(float)
    np.testing.assert_allclose(looked[:, :, :, 6, 6], 0, atol=1e-3)
    np.testing.assert_allclose(looked[:3, :, :, 5, 7], 1, rtol=1e-3)
    np.testing.assert_allclose(looked[3:, :, :, 5, 7], -1, rtol=1e-3)
    view = Observed(space, (0,))
    assert_close(view.images(looked)[0], jnp.moveaxis(looked, -3, -1))
    np.testing.assert_allclose(view.images(pictures)[0][0, 0, 6, 6], 90 / 255, rtol=1e-6)
