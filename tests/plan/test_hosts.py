"""Where replicas lie if there are several hosts, and what goes from one to another; on machines that are not here."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

import motet
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.plan.check import violations
from motet.plan.hosts import hosts_of, over, replicas_on
from motet.plan.places import Spot, locate, problems
from motet.plan.plan import Fragment, Plan
from motet.plan.plan_text import text
from motet.plan.project import project
from motet.plan.traffic import traffic

SPREAD = Plan(
    {
        "actors": Fragment(("act", "env"), replicas=4, per_device=2),
        "learner": Fragment(("*",), shards=2, host=1),
    },
    hosts=2,
)
CUTS = motet.coarse(4).cuts() + motet.coarse(2, learners=2).cuts() + motet.coarse(3).cuts()


@functools.cache
def graph() -> Graph:
    algorithm = motet.PPO(num_envs=12, num_steps=8, update_epochs=2, num_minibatches=2, hidden=(16,))
    return motet.trace(algorithm, motet.make("CartPole-v1"), cuts=CUTS)


def test_replicas_lie_over_hosts_in_blocks_and_one_piece_on_the_first() -> None:
    plan = over(motet.coarse(4), 2)
    assert hosts_of(plan, "actors") == (0, 0, 1, 1)
    assert hosts_of(plan, "learner") == (0,)
    assert replicas_on(plan, "actors", 1) == range(2, 4)
    assert replicas_on(plan, "learner", 1) == range(0)


def test_a_fragment_that_names_a_host_is_whole_there() -> None:
    assert hosts_of(SPREAD, "learner") == (1,)
    assert hosts_of(replace(SPREAD, fragments={"all": Fragment(("*",), replicas=3, host=1)}), "all") == (1, 1, 1)


def test_each_host_gives_its_own_devices_in_turn() -> None:
    spots = locate(SPREAD, {"cpu": 4})
    assert spots["actors"] == [Spot("cpu", (0,), "", 0), Spot("cpu", (0,), "", 0)] + [Spot("cpu", (0,), "", 1)] * 2
    assert spots["learner"] == [Spot("cpu", (1, 2), "", 1)]


def test_devices_are_counted_on_one_host() -> None:
    plan = Plan({"actors": Fragment(("act", "env"), replicas=4, place="cpu:0"), "learner": Fragment(("*",))}, hosts=2)
    assert not list(problems(plan, {"cpu": 2}))
    assert "takes devices 0 to 1, but there are 1" in next(problems(plan, {"cpu": 1}))


def test_hosts_go_to_json_and_back() -> None:
    assert Plan.from_json(SPREAD.to_json()) == SPREAD
    assert Plan.from_json('{"fragments": {"a": {"nodes": ["*"]}}}').hosts == 1


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (over(motet.coarse(3), 2), "3 replicas do not divide by 2 hosts"),
        (over(motet.anakin(), 2), "nothing lies on host 1 of 2"),
        (over(motet.coarse(2, learners=2), 2), "'learner': 1 x 2 shards would lie on several of 2 hosts"),
        (replace(motet.coarse(2), hosts=0), "hosts must be a whole number of at least 1, got 0"),
        (replace(motet.coarse(2), hosts="two"), "hosts must be a whole number of at least 1, got 'two'"),
        (Plan({"all": Fragment(("*",), host=2)}, hosts=2), "host must be a number from 0 to 1, got 2"),
    ],
)
def test_what_cannot_lie_over_hosts_is_named(plan: Plan, said: str) -> None:
    assert [each for each in violations(graph(), plan, 4) if said in each]


def test_what_lies_over_hosts_is_fine() -> None:
    for plan in (over(motet.coarse(4), 2), over(motet.coarse(4), 4), replace(SPREAD, links={})):
        assert not violations(graph(), plan, 4)


def test_a_plan_for_other_hosts_is_refused() -> None:
    assert over(SPREAD, None) is SPREAD and over(SPREAD, 2) is SPREAD
    with pytest.raises(BadOption, match="for 2 hosts, and 3 are asked for"):
        over(SPREAD, 3)


def test_only_what_leaves_a_host_crosses() -> None:
    """Of four actors over two hosts, two have the learner with them."""
    plan = over(motet.coarse(4), 2)
    rows = {row.link: row for row in traffic(graph(), plan, project(graph(), plan))}
    assert rows["rollout"].crossing * 2 == rows["rollout"].bytes > 0
    assert rows["policy"].crossing * 2 == rows["policy"].bytes > 0
    alone = traffic(graph(), motet.coarse(4), project(graph(), motet.coarse(4)))
    assert all(row.crossing == 0 for row in alone)


def test_the_text_of_a_plan_says_what_lies_where() -> None:
    plan = over(motet.coarse(4), 2)
    shown = text(graph(), plan)
    crossing = sum(row.crossing for row in traffic(graph(), plan, project(graph(), plan)))
    assert f"Between hosts, one iteration sends {crossing:,} bytes: rollout" in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["0", "actors[0-1]", "0-5"] in lines and ["1", "actors[2-3]", "6-11"] in lines
    assert "host" not in text(graph(), motet.coarse(4))
