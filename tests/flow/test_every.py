"""What runs in every n-th iteration: when, what it leaves alone, what it reports and what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.report import Columns
from motet.flow import graph_text as show
from motet.plan.check import violations
from motet.plan.plan_text import text
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.flow.probe import Probe
from tests.laws.cases import assert_close, run
from tests.published.agreement import PLANS, assert_agrees, states, traced, whole
from tests.published.walk import Walk

WALK = Walk()
ITERATIONS = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Phase:
    when: jax.Array  # [ITERATIONS] in which iterations the phase ran
    iteration: jax.Array


class Phases(Probe):
    """Learns a second time in every third iteration, in minibatches, and notes when; every second, it notes as well."""

    def fresh(self) -> Phase:
        return Phase(jnp.zeros(ITERATIONS, jnp.int32), jnp.zeros((), jnp.int32))

    def tick(self, phase: Phase) -> Phase:
        return Phase(phase.when, phase.iteration + 1)

    def note(self, phase: Phase, by: jax.Array) -> Phase:
        return Phase(phase.when.at[phase.iteration].add(by.astype(jnp.int32)), phase.iteration)

    def one(self, params: Any) -> jax.Array:
        return jnp.ones(())

    def hundred(self, params: Any) -> dict[str, jax.Array]:
        return {"hundred": jnp.full((), 100.0)}

    def loop(self, flow: motet.Flow) -> None:
        phase = flow.state("phase", self.fresh)
        rollout = flow.unroll(self.act, steps=self.steps)
        self.learn(flow, rollout)
        with flow.every(3):
            flow.update(phase, self.note, flow.call(self.one))
            with flow.minibatches(rollout, epochs=1, count=2) as minibatch:
                self.learn(flow, minibatch)
            flow.report(flow.call(self.hundred))
        with flow.every(2):
            self.learn(flow, rollout)
        flow.update(phase, self.tick)


@pytest.mark.parametrize("plan", ["anakin-2", "coarse-2", "central-2"])
def test_phases_are_the_same_under_every_plan(plan: str) -> None:
    assert_agrees(Phases(), WALK, plan, ITERATIONS)


def test_a_phase_runs_in_every_third_iteration_and_not_before() -> None:
    graph = traced(Phases(), WALK, ITERATIONS)
    outcome, watcher = run(graph, motet.anakin(), iterations=ITERATIONS)
    found = states(graph, motet.anakin(), outcome)
    np.testing.assert_array_equal(found["phase"].when, [0, 0, 1, 0, 0, 1, 0, 0])
    assert int(found["learner"].updates) == 8 + 2 * 2 + 4
    known = Columns(graph)
    columns = known.names.index("hundred")
    np.testing.assert_array_equal(np.asarray(watcher.seen)[:, columns], [0, 0, 100, 0, 0, 100, 0, 0])
    assert known.every[columns] == 3


def test_a_state_that_only_a_phase_writes_outlives_the_iterations_between() -> None:
    """Nothing reads it in between, and yet it must be there afterwards."""

    class Seldom(Probe):
        def loop(self, flow: motet.Flow) -> None:
            count = flow.state("count", lambda: jnp.zeros((), jnp.int32))
            rollout = flow.unroll(self.act, steps=self.steps)
            with flow.every(2):
                flow.update(count, lambda count: count + 1)
                self.learn(flow, rollout)

    algorithm = Seldom()
    for plan in (motet.anakin(), motet.coarse(2)):
        graph = motet.trace(algorithm, WALK, iterations=5, cuts=plan.cuts())
        outcome, _ = run(graph, plan, iterations=5, mode="serial")
        found = states(graph, plan, outcome)
        assert int(found["count"]) == 2 and int(found["learner"].updates) == 2


class Stepping(Probe):
    """Its learner state is written in a phase and read by a call elsewhere behind it."""

    def look(self, params: Any, rollout: motet.Rollout) -> dict[str, jax.Array]:
        return {"look": jnp.mean(params) + jnp.mean(rollout.reward)}

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        with flow.every(2), flow.repeat(2):
            self.learn(flow, rollout)
        flow.report(flow.call(self.look, rollout))


@pytest.mark.parametrize("apart", ["look", "gradient", "apply"])
def test_nobody_is_taken_to_hold_what_was_sent_in_a_phase(apart: str) -> None:
    """Behind the phase a fragment reads what it was sent inside, or, if that did not run, what was there before."""
    plan = motet.Plan({"a": motet.Fragment((apart,)), "b": motet.Fragment(("*",))})
    graph = traced(Stepping(), WALK, 5)
    outcome, watcher = run(graph, plan, iterations=5)
    expected, rows = whole(Stepping(), WALK, 5)
    assert_close(states(graph, plan, outcome), expected)
    assert_close(watcher.seen, rows)


def test_who_was_sent_a_value_in_a_phase_has_one_where_it_does_not_run() -> None:
    """One fragment reads the policy inside of a phase and behind it; before the first phase it needs the first one."""

    class Inside(Stepping):
        def peek(self, params: Any) -> dict[str, jax.Array]:
            return {"peek": jnp.mean(params)}

        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=self.steps)
            with flow.every(2):
                self.learn(flow, rollout)
                flow.report(flow.call(self.peek))
            flow.report(flow.call(self.look, rollout))

    algorithm = Inside()
    plan = motet.Plan({"a": motet.Fragment(("peek", "look")), "b": motet.Fragment(("*",))})
    _, watcher = run(traced(algorithm, WALK, 3), plan, iterations=3)
    assert_close(watcher.seen, whole(algorithm, WALK, 3)[1])


def test_messages_of_a_phase_are_counted_where_it_runs() -> None:
    graph = traced(Stepping(), WALK, 5)
    plan = PLANS["central-2"]

    def messages(iterations: int) -> int:
        table = traffic(graph, plan, project(graph, plan), iterations)
        return next(row.messages for row in table if row.link == "gradient")

    assert [messages(n) for n in range(1, 6)] == [0, 4, 4, 8, 8]
    assert "(messages and bytes are for 2 iterations)" in text(graph, plan)


def test_what_a_phase_reports_is_averaged_over_the_iterations_that_ran_it() -> None:
    result = motet.train(Phases(), WALK, motet.anakin(), total_timesteps=8 * 32)
    assert result.metrics["hundred"] == 100
    short = motet.train(Phases(), WALK, motet.anakin(), total_timesteps=2 * 32)
    assert short.history[-1]["hundred"] is None and "hundred" not in short.metrics


def test_a_phase_that_runs_always_is_a_loop_of_one_round() -> None:
    class Always(Probe):
        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=self.steps)
            with flow.every(1):
                self.learn(flow, rollout)

    graph = traced(Always(), WALK, 2)
    outcome, _ = run(graph, motet.anakin(), iterations=2)
    assert int(states(graph, motet.anakin(), outcome)["learner"].updates) == 2


def test_the_graph_shows_phases_and_both_values_behind_them() -> None:
    graph = traced(Stepping(), WALK, 5)
    assert "every 2 iterations" in show.text(graph) and '"every": 2' in show.to_json(graph)
    edges = {(edge.producer, edge.consumer) for edge in graph.edges() if edge.var == "policy"}
    assert {("apply", "look"), ("init/learner", "look")} <= edges


def attempt(loop: Any) -> str:
    class Mine(Probe):
        def loop(self, flow: motet.Flow) -> None:
            loop(self, flow)

    with pytest.raises(motet.BadAlgorithm) as caught:
        traced(Mine(), WALK, 1)
    return str(caught.value)


def test_mistakes_are_named() -> None:
    def inside(a: Probe, flow: motet.Flow) -> None:
        rollout = flow.unroll(a.act, steps=2)
        with flow.repeat(2), flow.every(2):
            a.learn(flow, rollout)

    def unrolled(a: Probe, flow: motet.Flow) -> None:
        with flow.every(2):
            flow.unroll(a.act, steps=2)

    def remembered(a: Probe, flow: motet.Flow) -> None:
        rollout = flow.unroll(a.act, steps=2)
        with flow.every(2):
            flow.remember(rollout.transitions, into=motet.Uniform(64))

    def escaped(a: Probe, flow: motet.Flow) -> None:
        rollout = flow.unroll(a.act, steps=2)
        with flow.every(2):
            gradient, _ = flow.call(a.gradient, rollout)
        flow.apply(a.apply, gradient)

    def never(a: Probe, flow: motet.Flow) -> None:
        with flow.every(0):
            pass

    assert "it belongs directly into Mine.loop, not into the loop 'repeat'" in attempt(inside)
    assert "flow.unroll belongs directly into Mine.loop" in attempt(unrolled)
    assert "flow.remember cannot be in flow.every" in attempt(remembered)
    assert "outside the loop 'every'" in attempt(escaped)
    assert "a whole number of iterations from 1 on, got 0" in attempt(never)


def test_a_draw_in_a_phase_cannot_be_made_ahead() -> None:
    """New priorities come back in the next phase, not in the next round."""

    class Draws(Probe):
        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=self.steps)
            flow.remember(rollout.transitions, into=motet.Prioritised(128))
            with flow.every(2):
                sample = flow.sample(16)
                errors = flow.call(lambda params, sample: jnp.abs(sample.items.reward), sample)
                self.learn(flow, sample.items)
                flow.reprioritize(sample, errors)

    algorithm = Draws()
    ahead = motet.pearl(lag=0, prefetch=1)
    found = violations(traced(algorithm, WALK, 5), ahead)
    assert any("link 'sample' cannot lag" in each or "learns from a lag" in each for each in found)
    assert_agrees(algorithm, WALK, "pearl-host", iterations=5)
