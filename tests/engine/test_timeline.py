"""The record of a few iterations: what workers did, when, and that looking changes nothing."""

from __future__ import annotations

import itertools

import jax
import pytest

import motet
from motet.engine import timeline
from motet.engine.timeline import Recorder

SMALL = motet.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=2, update_epochs=1)


def trained(plan: motet.Plan, iterations: int = 8) -> motet.Result:
    return motet.train(SMALL, "CartPole-v1", plan, total_timesteps=iterations * 32, progress=False)


@pytest.fixture(scope="module")
def cut() -> motet.Result:
    return trained(motet.coarse(actors=2, lag=1))


def test_every_replica_has_a_lane_of_what_it_did(cut: motet.Result) -> None:
    lanes = {lane.name: lane for lane in cut.timeline}
    assert list(lanes) == ["actors[0]", "actors[1]", "learner"]
    assert {lane.fragment for lane in cut.timeline} == set(cut.plan.fragments)
    kinds = {name: {span.kind for span in lane.spans} for name, lane in lanes.items()}
    for name in lanes:
        assert {"compute", "send", "receive"} <= kinds[name] <= {"compute", "send", "receive", "wait"}
    sent = [span.name for span in lanes["actors[1]"].spans if span.kind == "send"]
    assert len(sent) == timeline.LOOKS and all("rollout" in name for name in sent)


def test_a_worker_does_one_thing_at_a_time(cut: motet.Result) -> None:
    for lane in cut.timeline:
        assert all(span.start <= span.end for span in lane.spans)
        assert all(one.end <= other.start for one, other in itertools.pairwise(lane.spans))


def test_the_call_of_many_iterations_is_one_span() -> None:
    (lane,) = trained(motet.anakin(), 64).timeline
    assert {span.kind for span in lane.spans} == {"compute"} and len(lane.spans) <= timeline.LOOKS
    assert lane.spans[0].name.startswith("iteration")


def test_looking_changes_nothing(cut: motet.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "LOOKS", 0)
    unseen = trained(motet.coarse(actors=2, lag=1))
    assert not any(lane.spans for lane in unseen.timeline)
    pairs = zip(jax.tree.leaves(cut.policy.params), jax.tree.leaves(unseen.policy.params), strict=True)
    assert all((one == other).all() for one, other in pairs)


def test_the_record_has_a_constant_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST", 5)
    recorder = Recorder()
    for _ in range(100):
        recorder.iterated()
        for _ in range(10):
            if recorder.on:
                recorder.add("compute", "all", 0.0)
    assert len(recorder.spans) == 5
