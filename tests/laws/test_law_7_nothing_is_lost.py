"""Each environment step is learned from exactly as often as the loop says."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.run import gather
from tests.laws.cases import run, traced

STEPS, ENVS, EPOCHS, ROUNDS = 4, 8, 3, 5


@dataclass(frozen=True)
class Numbered(motet.Environment):
    """Each step of each environment pays a reward that no other step pays: its number, plus a random identity."""

    observation_space: motet.Box = motet.Box(0, 1e9, (1,))
    action_space: motet.Discrete = motet.Discrete(2)
    time_limit: int | None = 3

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        identity = jax.random.uniform(key)
        return identity, identity[None]

    def step(self, state: Any, action: Any, key: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        return state + 1, (state + 1)[None], state, jnp.zeros((), bool)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Count:
    params: jax.Array
    total: jax.Array  # sum of all rewards learned from
    squares: jax.Array  # sum of their squares: two different steps cannot stand in for each other


@dataclass(frozen=True, kw_only=True)
class Tally(motet.Algorithm):
    """Learns nothing; adds up what it is given to learn from."""

    max_lag = None
    num_envs: int = ENVS
    minibatches: int = 2

    def init(self, key: jax.Array) -> Count:
        return Count(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return motet.Decision(jnp.zeros((), jnp.int32))

    def measure(self, params: Any, reward: jax.Array) -> Any:
        return jnp.mean(reward), jnp.mean(jnp.square(reward))

    def apply(self, state: Count, mean: jax.Array, square: jax.Array) -> Count:
        rows = STEPS * ENVS / self.minibatches
        return Count(state.params, state.total + mean * rows, state.squares + square * rows)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        with flow.minibatches(rollout.reward, epochs=EPOCHS, count=self.minibatches) as reward:
            mean, square = flow.call(self.measure, reward)
            flow.apply(self.apply, mean, square)


PLANS = {
    "anakin-2": motet.anakin(2),
    "coarse-2": motet.coarse(2),
    "coarse-2-lag-2": motet.coarse(2, lag=2),
    "coarse-latest": motet.coarse(2, lag="latest"),
    "fine-4": motet.fine(4),
    "central-2": motet.central(2),
    "central-latest": motet.central(2, lag="latest"),
}


@pytest.mark.parametrize(("name", "minibatches"), [*((name, 2) for name in PLANS), ("anakin-2", 16), ("coarse-2", 16)])
def test_every_step_is_learned_from_as_often_as_there_are_epochs(name: str, minibatches: int) -> None:
    """16 minibatches of 4 steps x 8 environments need rows from blocks of environments; 2 only permute time."""
    algorithm = Tally(minibatches=minibatches)
    reference = traced(algorithm, motet.anakin(), Numbered(), iterations=ROUNDS)
    graph = traced(algorithm, PLANS[name], Numbered(), iterations=ROUNDS)
    outcome, seen = run(graph, PLANS[name], iterations=ROUNDS)
    count = gather(graph, outcome, "learner")
    whole = gather(reference, run(reference, motet.anakin(), iterations=ROUNDS)[0], "learner")
    np.testing.assert_allclose(count.total, whole.total, rtol=1e-5)
    np.testing.assert_allclose(count.squares, whole.squares, rtol=1e-5)
    # Counters agree at both ends: the environments finished the episodes that were reported.
    steps_of_each = STEPS * ROUNDS
    episodes = sum(row[0] for row in seen.seen)
    assert episodes == ENVS * (steps_of_each // 3)


def test_the_tally_itself_is_right() -> None:
    """The fused run's sum, computed here from each environment's identity alone."""
    graph = traced(Tally(), motet.anakin(), Numbered(), iterations=1)
    before, _ = run(graph, motet.anakin(), iterations=0)
    identities = np.asarray(gather(graph, before, "env").state, np.float64)
    # 4 steps with a time limit of 3: rewards i, i + 1, i + 2, then a new identity's first reward.
    outcome, _ = run(graph, motet.anakin(), iterations=1)
    renewed = np.asarray(gather(graph, outcome, "env").state, np.float64) - 1
    total = np.sum(3 * identities + 3) + np.sum(renewed)
    np.testing.assert_allclose(gather(graph, outcome, "learner").total, EPOCHS * total, rtol=1e-5)


def test_replay_holds_the_last_steps_and_no_others() -> None:
    options: dict[str, Any] = {"train_frequency": 2, "batch_size": 8, "buffer_size": 48, "learning_starts": 16}
    algorithm = motet.DQN(num_envs=4, hidden=(8,), n_step=1, **options)  # 12 rows for each environment
    for plan in (motet.anakin(), motet.coarse(2), motet.pearl(2, lag=0)):
        graph = traced(algorithm, plan, Numbered(time_limit=None), iterations=10)
        outcome, _ = run(graph, plan, iterations=10)
        ring = gather(graph, outcome, "replay")
        assert int(ring.size) == 12
        steps = 2 * 10 + graph.prefill_steps // 4
        identity = np.asarray(gather(graph, outcome, "env").state) - steps
        rewards = np.sort(np.asarray(ring.items.reward) - identity[None], axis=0)
        last = np.arange(steps - 12, steps)
        np.testing.assert_allclose(rewards, np.broadcast_to(last[:, None], rewards.shape), atol=1e-3)
