"""Where replicas lie, on machines that are not here."""

import pytest

import motet
from motet.plan.places import Spot, locate, platforms, problems
from motet.plan.plan import Fragment, Plan

MIXED = Plan(
    {
        "actors": Fragment(("act", "env"), replicas=2, place="cpu:0"),
        "learner": Fragment(("*",), shards=4, place="cuda:2"),
    }
)
EIGHT = {"cuda": 8, "cpu": 2}


def test_devices_of_several_platforms_serve_one_plan() -> None:
    assert platforms(MIXED, "cuda") == ["cuda", "cpu"]
    assert not list(problems(MIXED, EIGHT))
    spots = locate(MIXED, EIGHT)
    assert spots["actors"] == [Spot("cpu", (0,)), Spot("cpu", (1,))]
    assert spots["learner"] == [Spot("cuda", (2, 3, 4, 5))]


def test_fragments_without_a_place_take_the_usual_devices_in_turn() -> None:
    spots = locate(motet.sebulba(actors=2, threads=2, learners=4), EIGHT)
    assert [spot.devices for spot in spots["actors"]] == [(0,), (0,), (1,), (1,)]
    assert spots["learner"] == [Spot("cuda", (2, 3, 4, 5))]


def test_a_replay_outside_of_xla_leaves_the_devices_alone() -> None:
    plan = motet.pearl(replay="host")
    assert platforms(plan, "tpu") == ["tpu", "cpu"]
    spots = locate(plan, {"tpu": 4, "cpu": 1})
    assert spots["replay"] == [Spot("cpu", (0,), "host")]
    assert spots["learner"] == [Spot("tpu", (1,))]


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({"cpu": 2}, "'learner' is placed on 'cuda:2', but devices here are of the kind 'cpu'"),
        ({"cuda": 4, "cpu": 2}, "takes devices 2 to 5, but there are 4 of the kind 'cuda'"),
        ({"cuda": 8, "cpu": 1}, "takes devices 0 to 1, but there are 1 (on a CPU, ask for more"),
    ],
)
def test_devices_that_are_not_there_are_named(devices: dict[str, int], said: str) -> None:
    assert any(said in each for each in problems(MIXED, devices))
