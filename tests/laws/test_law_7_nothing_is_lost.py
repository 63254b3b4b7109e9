"""Each environment step is learned from exactly as often as the loop says."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from tests.laws.cases import run, state, traced
from tests.laws.references.worlds import World, address, advance, begin
from tests.laws.tally import ENVS, EPOCHS, LIMIT, NAMES, ROUNDS, STEPS, Tally

SEED = 1


@dataclass(frozen=True)
class Numbered(motet.Environment):
    """Each step of each episode has a number: that of the episode's name, and how many steps were before it. It is
    the observation of the step, and the reward."""

    observation_space: motet.Box = motet.Box(0, 1e9, (1,))
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = LIMIT

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        number = (jax.random.bits(key) % NAMES).astype(int) * LIMIT
        return number, number[None].astype(float)

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        return state + 1, (state + 1)[None].astype(float), state.astype(float), jnp.zeros((), bool)


@functools.cache
def numbers_of_each_iteration() -> np.ndarray:
    """How often each number comes up in each iteration [iterations, numbers], by a few lines of their own."""
    root = jax.random.key(SEED)

    @jax.vmap
    def reset(key: jax.Array) -> jax.Array:
        return (jax.random.bits(key) % NAMES).astype(int)[None] * LIMIT

    def step(state: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return state + 1, state[:, 0], jnp.zeros(ENVS, bool)

    world = World(reset, step, lambda state: state, 1, LIMIT)
    now, counts = begin(world, root, ENVS), np.zeros((ROUNDS, NAMES * LIMIT), int)
    for iteration in range(ROUNDS):
        for t in range(STEPS):
            now, steps, _ = advance(world, now, jnp.zeros(ENVS), address(root, "env", iteration, t))
            np.add.at(counts[iteration], np.asarray(steps.reward), 1)
    return counts


PLANS = {
    "anakin": motet.anakin(),
    "anakin-2": motet.anakin(2),
    "coarse-2": motet.coarse(2),
    "coarse-2-lag-2": motet.coarse(2, lag=2),
    "coarse-2-sharded": motet.coarse(2, learners=2, lag=1),
    "coarse-latest": motet.coarse(2, lag="latest"),
    "sebulba": motet.sebulba(1, 2),
    "fine-4": motet.fine(4),
    "central-2": motet.central(2),
    "central-latest": motet.central(2, lag="latest"),
}


@pytest.mark.parametrize(("name", "minibatches"), [*((name, 2) for name in PLANS), ("anakin-2", 16), ("coarse-2", 16)])
def test_every_step_is_learned_from_in_its_iteration_as_often_as_there_are_epochs(name: str, minibatches: int) -> None:
    """16 minibatches of 4 steps x 8 environments need rows from blocks of environments; 2 only permute time."""
    graph = traced(Tally(minibatches=minibatches), PLANS[name], Numbered(), iterations=ROUNDS)
    outcome, seen = run(graph, PLANS[name], iterations=ROUNDS, seed=SEED)
    np.testing.assert_array_equal(state(graph, outcome, "learner").seen, EPOCHS * numbers_of_each_iteration())
    # Counters agree at both ends: the environments finished the episodes that were reported.
    steps_of_each = STEPS * ROUNDS
    episodes = sum(row[0] for row in seen.seen)
    assert episodes == ENVS * (steps_of_each // LIMIT)


def test_replay_holds_the_last_steps_and_no_others() -> None:
    options: dict[str, Any] = {"train_frequency": 2, "batch_size": 8, "buffer_size": 48, "learning_starts": 16}
    algorithm = motet.DQN(num_envs=4, hidden=(8,), n_step=1, **options)  # 12 rows for each environment
    for plan in (motet.anakin(), motet.coarse(2), motet.pearl(2, lag=0)):
        graph = traced(algorithm, plan, Numbered(time_limit=None), iterations=10)
        outcome, _ = run(graph, plan, iterations=10)
        ring = state(graph, outcome, "replay")
        assert int(ring.size) == 12
        steps = 2 * 10 + graph.prefill_steps // 4
        identity = np.asarray(state(graph, outcome, "env").state) - steps
        rewards = np.sort(np.asarray(ring.items.reward) - identity[None], axis=0)
        last = np.arange(steps - 12, steps)
        np.testing.assert_allclose(rewards, np.broadcast_to(last[:, None], rewards.shape), atol=1e-3)
