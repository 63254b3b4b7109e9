"""Where replicas lie if there are several hosts, and what goes from one to another; on machines that are not here."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

import motet
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.plan.check import violations
from motet.plan.collectives import collectives
from motet.plan.hosts import hosts_of, members, members_on, over, span, spanning, together
from motet.plan.places import Spot, locate, problems
from motet.plan.plan import Fragment, Link, Plan
from motet.plan.plan_text import text
from motet.plan.project import project
from motet.plan.project import wires as wires_of
from motet.plan.route import nearest, pieces, routes
from motet.plan.traffic import traffic

SPREAD = Plan(
    {
        "actors": Fragment(("act", "env"), replicas=4, per_device=2),
        "learner": Fragment(("*",), shards=2, host=1),
    },
    hosts=2,
)
SPANNING = over(motet.sebulba(actors=2, threads=2, learners=4), 2)
"""Its learner is one program on two hosts."""
CUTS = motet.coarse(4).cuts() + motet.coarse(2, learners=2).cuts() + motet.coarse(3).cuts() + motet.anakin(4).cuts()


@functools.cache
def graph() -> Graph:
    algorithm = motet.PPO(num_envs=12, num_steps=8, update_epochs=2, num_minibatches=2, hidden=(16,))
    return motet.trace(algorithm, motet.make("CartPole-v1"), cuts=CUTS)


def test_replicas_lie_over_hosts_in_blocks_and_one_piece_on_the_first() -> None:
    plan = over(motet.coarse(4), 2)
    assert hosts_of(plan, "actors") == (0, 0, 1, 1)
    assert hosts_of(plan, "learner") == (0,)
    assert members_on(plan, "actors", 1) == range(2, 4)
    assert members_on(plan, "learner", 1) == range(0)


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
        (over(motet.coarse(2, learners=3), 2), "'learner': 3 shards do not divide by 2 hosts"),
        (Plan({"all": Fragment(("*",), replicas=3, shards=2)}, hosts=2), "3 replicas do not divide by 2 hosts"),
        (over(motet.anakin(8), 2), "'all' needs 4 devices, but there are 2"),
        (
            Plan(
                {"actors": Fragment(("act", "env"), shards=2), "learner": Fragment(("*",))},
                {"policy": Link("latest")},
                hosts=2,
            ),
            "'actors' is one program on 2 hosts, and what is the latest need not be the same on all",
        ),
        (replace(motet.coarse(2), hosts=0), "hosts must be a whole number of at least 1, got 0"),
        (replace(motet.coarse(2), hosts="two"), "hosts must be a whole number of at least 1, got 'two'"),
        (Plan({"all": Fragment(("*",), host=2)}, hosts=2), "host must be a number from 0 to 1, got 2"),
    ],
)
def test_what_cannot_lie_over_hosts_is_named(plan: Plan, said: str) -> None:
    assert [each for each in violations(graph(), plan, 2) if said in each]


def test_what_lies_over_hosts_is_fine() -> None:
    plans = over(motet.coarse(4), 2), over(motet.coarse(4), 4), replace(SPREAD, links={}), SPANNING
    for plan in (*plans, over(motet.multi_learner(2), 2)):
        assert not violations(graph(), plan, 2)


def test_shards_that_span_hosts_are_a_member_on_each() -> None:
    assert (span(SPANNING, "learner"), members(SPANNING, "learner"), hosts_of(SPANNING, "learner")) == (2, 2, (0, 1))
    assert (span(SPANNING, "actors"), members(SPANNING, "actors")) == (1, 4)
    assert spanning(SPANNING) == ["learner"] and spanning(SPREAD) == [] and spanning(together(SPANNING)) == []
    spots = locate(SPANNING, {"cpu": 4})
    assert spots["learner"] == [Spot("cpu", (1, 2), "", 0), Spot("cpu", (1, 2), "", 1)]
    assert not list(problems(SPANNING, {"cpu": 2}))


def test_nothing_leaves_a_host_that_has_both_ends() -> None:
    """Rollouts go to the member with their environments, and the policy comes from it; only collectives cross."""
    rows = traffic(graph(), SPANNING, project(graph(), SPANNING))
    assert sum(row.bytes for row in rows) > 0 == sum(row.crossing for row in rows)
    wires = {wire for program in project(graph(), SPANNING).values() for wire, _ in wires_of(program.body)}
    for wire in wires:
        hosts = hosts_of(SPANNING, wire.source), hosts_of(SPANNING, wire.target)
        assert all(hosts[0][sender] == hosts[1][receiver] for sender, receiver in routes(graph(), SPANNING, wire))


def test_what_all_members_have_comes_from_the_nearest() -> None:
    assert [nearest((0, 1), usual, 1) for usual in (0, 1)] == [1, 1]
    assert nearest((0, 0), 1, 1) == 1  # nobody is there


def test_members_of_one_program_send_results_over_the_batch_once() -> None:
    """They have been combined by collectives, unlike those of replicas."""
    var = next(var for var in graph().variables.values() if any(var.combine))
    leaf = next(place for place, how in enumerate(var.combine) if how)
    sent = [
        [sender for sender in range(2) if leaf in [each.leaf for each in pieces((var,), sender, 2, 0, 1, 0, joined)]]
        for joined in (True, False)
    ]
    assert sent == [[0], [0, 1]]


def test_collectives_are_the_gradient_and_statistics() -> None:
    """PPO: a gradient and its metrics for each minibatch of each epoch, and the moments of advantages."""
    found = {each.node: each.bytes for each in collectives(graph(), SPANNING)}
    gradient, metrics = (graph().variables[f"gradient.{place}"].nbytes() for place in range(2))
    rounds = 2 * 2
    assert found.keys() == {"gradient"}
    assert 0 < found["gradient"] - rounds * (gradient + metrics) < rounds * 100  # a few numbers
    assert collectives(graph(), together(SPANNING)) == [] == collectives(graph(), over(motet.coarse(4), 2))
    shown = text(graph(), SPANNING)
    assert f"learner is one program on 2 hosts: in one iteration its collectives combine {found['gradient']:,}" in shown
    assert "Between hosts, one iteration sends 0 bytes." in shown
    lines = [line.split() for line in shown.splitlines()]
    assert ["learner[0]", "0-5"] in lines and ["learner[1]", "6-11"] in lines


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
