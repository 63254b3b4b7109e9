"""An ordered pass over a replay: every step that it holds, once, oldest first, wherever the replay lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.flow.values import Transitions
from tests.flow.probe import Probe
from tests.published.agreement import assert_agrees, traced
from tests.published.walk import Walk

WALK = Walk()


@dataclass(frozen=True, kw_only=True)
class Sweeps(Probe):
    """Goes through its replay in every second iteration and learns from each batch of it."""

    capacity: int = 96
    rows: int = 5

    def masked(self, params: Any, swept: Any) -> motet.Transitions:
        steps, held = swept.items, swept.held
        reward = jnp.where(held, jnp.cumsum(jnp.where(held, steps.reward, 0), 0), 0)
        return motet.Transitions(steps.observation, steps.action, reward, (), ())

    def share(self, params: Any, swept: Any) -> dict[str, jax.Array]:
        return {"held": jnp.mean(swept.held.astype(float))}

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        flow.remember(rollout.transitions, into=motet.Uniform(self.capacity))
        with flow.every(2), flow.sweep(self.rows) as swept:
            flow.report(flow.call(self.share, swept))
            self.learn(flow, flow.call(self.masked, swept))


@pytest.mark.parametrize("plan", ["anakin-2", "central-2", "pearl-host", "pearl-opencl"])
def test_a_sweep_is_the_same_under_every_plan_and_wherever_the_replay_lies(plan: str) -> None:
    assert_agrees(Sweeps(), WALK, plan, iterations=4)


REPLAYS: dict[str, Any] = {
    "uniform": motet.Uniform(24),
    "prioritised": motet.Prioritised(24),
    "items of several steps": motet.Uniform(24, n_step=2),
    "sequences": motet.Uniform(24, sequence=3),
    "frames": motet.Uniform(40, frames=2),
}


def additions(count: int, envs: int = 4, time: int = 2) -> list[Transitions]:
    """Steps that carry their own number, in episodes of five."""
    made = []
    for start in range(0, count * time, time):
        step = np.arange(start, start + time)[:, None]
        number = (step * 10 + np.arange(envs)[None]).astype(np.float32)
        over = np.broadcast_to(step % 5 == 4, number.shape).copy()
        before = np.where(step % 5 == 0, number, number - 10)
        seen, follows = (np.stack(pair, -1)[..., None] for pair in ((before, number), (number, number + 10)))
        made.append(Transitions(seen, number.astype(np.int32), number, over, follows, (), np.zeros_like(over)))
    return made


def sweep(into: Any, added: list[Transitions], place: str | None, steps: int) -> list[Any]:
    """The batches of a pass over a replay that was given these steps."""
    numbers = range(-(-into.rows(added[0], 4) // steps))
    if place is None:
        state = into.empty(added[0], 4)
        for each in added:
            state = into.add(state, jax.tree.map(jnp.asarray, each))
        return [into.sweep(state, jnp.int32(number), steps) for number in numbers]
    with into.open(added[0], 4, place) as store:
        for each in added:
            store.add(each)
        return [jax.tree.map(np.asarray, store.sweep(number, steps)) for number in numbers]


@pytest.mark.parametrize("place", [None, "host", "opencl"])
@pytest.mark.parametrize("replay", ["uniform", "prioritised", "items of several steps", "sequences"])
def test_every_step_that_is_held_comes_once_and_in_order(replay: str, place: str | None) -> None:
    into = REPLAYS[replay]
    for count in (1, 2, 7):  # 2 to 14 of the 6 rows that there are
        added = additions(count)
        batches = sweep(into, added, place, steps=4)
        reward = np.concatenate([batch.items.reward for batch in batches])
        held = np.concatenate([batch.held for batch in batches])
        rows = into.rows(added[0], 4)
        np.testing.assert_array_equal(held.all(1), held.any(1))
        np.testing.assert_array_equal(reward[held.all(1)], np.concatenate([each.reward for each in added])[-rows:])
        assert held.sum() == min(2 * count, rows) * 4


@pytest.mark.parametrize("place", [None, "host"])
def test_pictures_that_are_gone_are_not_held(place: str | None) -> None:
    """Each step stacks its own picture on the one before it: the oldest row has lost that."""
    into, added = REPLAYS["frames"], additions(12)
    (swept,) = sweep(into, added, place, steps=into.rows(added[0], 4))
    held = np.asarray(swept.held)
    assert held[-1].all() and not held[0].any()
    expected = np.concatenate([each.observation for each in added])[-len(held) :]
    np.testing.assert_array_equal(np.asarray(swept.items.observation)[held], expected[held])


def test_a_sweep_needs_a_replay_and_steps() -> None:
    class Nothing(Probe):
        def loop(self, flow: motet.Flow) -> None:
            flow.unroll(self.act, steps=2)
            with flow.sweep(4):
                pass

    with pytest.raises(motet.BadAlgorithm, match=r"flow.sweep needs a flow.remember before it"):
        traced(Nothing(), WALK, 1)
    with pytest.raises(motet.BadAlgorithm, match=r"a number of steps from 1 on, got 0"):
        traced(Sweeps(rows=0), WALK, 1)


def test_a_sweep_has_as_many_rounds_as_batches_in_the_replay() -> None:
    graph = traced(Sweeps(), WALK, 4)
    (phase,) = (item for item in graph.iteration.body if item.name == "every")
    assert phase.body[0].name == "sweep" and phase.body[0].count == 3  # 12 rows, 5 at a time
