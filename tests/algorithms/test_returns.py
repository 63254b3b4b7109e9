"""Returns by recursion equal their definitions as sums, with episodes that end in both ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.algorithms.returns import gae, vtrace

T, B, DISCOUNT = 23, 16, 0.97
SEEDS = range(4)


def steps(seed: int) -> dict[str, np.ndarray]:
    """Random steps. Where no episode ends, the next value is the value of the next step."""
    chance = np.random.default_rng(seed)
    reward, value, final = chance.normal(size=(3, T, B))
    ended = chance.random((T, B)) < 0.15
    terminated = ended & (chance.random((T, B)) < 0.5)
    truncated = ended & ~terminated
    assert terminated.any() and truncated.any()
    following = np.concatenate([value[1:], final[-1:]])
    return {
        "reward_t": reward,
        "value_t": value,
        "next_value_t": np.where(ended, final, following),
        "terminated_t": terminated,
        "truncated_t": truncated,
    }


def sums(seen: dict[str, np.ndarray], rho: np.ndarray, c: np.ndarray) -> np.ndarray:
    """[T, B]: at each s the sum over t >= s of discount^(t-s) * c_s ... c_{t-1} * delta_t, up to the episode's end."""
    reward, value, next_value, terminated, truncated = seen.values()
    delta = rho * (reward + DISCOUNT * np.where(terminated, 0, next_value) - value)
    total = np.zeros((T, B))
    for env in range(B):
        for s in range(T):
            for t in range(s, T):
                total[s, env] += DISCOUNT ** (t - s) * np.prod(c[s:t, env]) * delta[t, env]
                if terminated[t, env] or truncated[t, env]:
                    break
    return total


def arrays(seen: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in seen.items()}


def assert_close(ours: jax.Array, theirs: np.ndarray | jax.Array) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trace", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_gae_is_the_discounted_sum_of_errors(seed: int, trace: float) -> None:
    seen = steps(seed)
    expected = sums(seen, np.ones((T, B)), np.full((T, B), trace))
    assert_close(gae(**arrays(seen), discount=DISCOUNT, trace=trace), expected)


@pytest.mark.parametrize(("trace", "rho_clip", "c_clip"), [(1.0, 1.0, 1.0), (0.9, 2.0, 0.7), (0.5, 0.8, 1.5)])
@pytest.mark.parametrize("seed", SEEDS)
def test_vtrace_is_its_definition_as_a_sum(seed: int, trace: float, rho_clip: float, c_clip: float) -> None:
    seen = steps(seed)
    log_ratio = np.random.default_rng(100 + seed).normal(size=(T, B))
    rho, c = np.minimum(rho_clip, np.exp(log_ratio)), trace * np.minimum(c_clip, np.exp(log_ratio))
    correction = sums(seen, rho, c)
    target, advantage = vtrace(jnp.asarray(log_ratio), **arrays(seen), discount=DISCOUNT, trace=trace,
                               rho_clip=rho_clip, c_clip=c_clip)  # fmt: skip
    assert_close(target, seen["value_t"] + correction)
    # What follows is worth its target while the episode goes on in the rollout, and its value where it does not.
    ended = seen["terminated_t"] | seen["truncated_t"]
    later = np.where(ended, 0, np.concatenate([correction[1:], np.zeros((1, B))]))
    worth = np.where(seen["terminated_t"], 0, seen["next_value_t"] + trace * later)
    assert_close(advantage, rho * (seen["reward_t"] + DISCOUNT * worth - seen["value_t"]))


@pytest.mark.parametrize("seed", SEEDS)
def test_vtrace_on_policy_gives_n_step_returns(seed: int) -> None:
    seen = steps(seed)
    target, advantage = vtrace(jnp.zeros((T, B)), **arrays(seen), discount=DISCOUNT)
    expected = np.zeros((T, B))
    for env in range(B):
        for s in range(T):
            for t in range(s, T):
                expected[s, env] += DISCOUNT ** (t - s) * seen["reward_t"][t, env]
                if seen["terminated_t"][t, env]:
                    break
                if seen["truncated_t"][t, env] or t == T - 1:
                    expected[s, env] += DISCOUNT ** (t - s + 1) * seen["next_value_t"][t, env]
                    break
    assert_close(target, expected)
    assert_close(advantage, expected - seen["value_t"])


@pytest.mark.parametrize("trace", [0.0, 0.9, 1.0])
def test_vtrace_on_policy_reduces_to_gae(trace: float) -> None:
    seen = arrays(steps(7))
    target, advantage = vtrace(jnp.zeros((T, B)), **seen, discount=DISCOUNT, trace=trace)
    expected = gae(**seen, discount=DISCOUNT, trace=trace)
    assert_close(advantage, expected)
    assert_close(target, seen["value_t"] + expected)


def test_vtrace_learns_nothing_from_actions_that_the_policy_would_not_take() -> None:
    seen = arrays(steps(8))
    target, advantage = vtrace(jnp.full((T, B), -jnp.inf), **seen, discount=DISCOUNT)
    np.testing.assert_array_equal(target, seen["value_t"])
    np.testing.assert_array_equal(advantage, np.zeros((T, B)))
