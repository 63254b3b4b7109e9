"""The rules of a wire, without a device, a thread or a clock."""

from __future__ import annotations

import pytest

import motet
from motet.plan import protocol
from motet.plan.check import violations
from motet.plan.plan import Fragment, Link, Plan
from motet.plan.project import project, wires
from motet.plan.protocol import Wire, capacities
from tests.laws.cases import ALGORITHMS, traced


def wire(link: str, source: str, target: str, *, carried: bool = False, lag: protocol.Lag = 0, **more) -> Wire:
    return Wire(link, source, target, (link,), more.pop("loop", "iteration"), 0, carried, lag, **more)


def test_a_carried_value_is_not_sent_in_the_last_round_unless_rounds_count_on() -> None:
    inner = wire("policy", "a", "b", carried=True, loop="repeat")
    assert [protocol.is_sent(inner, (5, r), last=2) for r in range(3)] == [True, True, False]
    through = wire("priorities", "a", "b", carried=True, loop="repeat", through=3, lag=1)
    assert all(protocol.is_sent(through, (5, r), last=2) for r in range(3))
    assert protocol.is_sent(wire("rollout", "a", "b"), (5, 2), last=2)
    assert protocol.is_sent(wire("policy", "a", "b", carried=True), (5,), last=None)  # iterations have no end


def test_the_round_that_is_due_is_as_far_back_as_the_lag_says() -> None:
    late = wire("policy", "a", "b", carried=True, lag=2)
    assert [protocol.due(late, (i,), 0) for i in range(5)] == [None, None, None, (0,), (1,)]
    inner = wire("policy", "a", "b", carried=True, loop="repeat")
    assert [protocol.due(inner, (4, r), 0) for r in range(3)] == [None, (4, 0), (4, 1)]
    through = wire("priorities", "a", "b", carried=True, loop="repeat", through=3, lag=1)
    assert [protocol.due(through, (i, r), 0) for i in range(2) for r in range(3)] == [
        None, None, (0, 0), (0, 1), (0, 2), (1, 0),
    ]  # fmt: skip
    assert protocol.due(wire("rollout", "a", "b"), (4,), 0) == (4,)


def test_age_is_the_lag_where_the_due_round_is_read() -> None:
    for lag in (0, 1, 4):
        late = wire("policy", "a", "b", carried=True, lag=lag)
        due = protocol.due(late, (9,), 0)
        assert due is not None and protocol.age(late, (9,), due) == lag
    latest = wire("policy", "a", "b", carried=True, lag="latest")
    assert [protocol.age(latest, (9,), (i,)) for i in (8, 7, 5)] == [0, 1, 3]
    assert protocol.age(latest, (9, 2), (9, 1)) == 0


def test_each_wire_holds_as_many_messages_as_its_own_way_back_needs() -> None:
    """A lag on one link is no reason to let another one run ahead."""
    rollout, sample = wire("rollout", "actors", "replay"), wire("sample", "replay", "learner", loop="repeat", lag=8)
    policy = wire("policy", "learner", "actors", carried=True, lag=1)
    answer = wire("priorities", "learner", "replay", carried=True, loop="repeat", lag=8, through=4)
    held = capacities([rollout, sample, policy, answer])
    assert (held[sample], held[answer], held[policy], held[rollout]) == (9, 9, 2, 2)
    newest = wire("policy", "learner", "actors", carried=True, lag="latest")
    assert capacities([rollout, sample, newest, answer])[rollout] == 1


@pytest.mark.parametrize(("prefetch", "lag", "ahead"), [(8, "latest", 1), (8, 1, 2), (0, 3, 4)])
def test_prefetching_does_not_let_actors_run_ahead(prefetch: int, lag: protocol.Lag, ahead: int) -> None:
    plan = motet.pearl(lag=lag, prefetch=prefetch)
    graph = traced(ALGORITHMS["dqn-prioritised"], plan)
    found = [wire for each in project(graph, plan).values() for wire, _ in wires(each.body)]
    held = {wire.link: count for wire, count in capacities(found).items()}
    assert held["sample"] == prefetch + 1
    assert held["rollout"] == ahead


APART = {"targets": Fragment(("targets",)), "rest": Fragment(("*",))}
ENVS = {"e": Fragment(("env",)), "l": Fragment(("*",))}
RULES = [
    # algorithm, plan, what is said of it; "" where it is accepted
    ("ppo", motet.coarse(2, lag=2), ""),
    ("ppo", Plan(ENVS, {"step": Link(1)}), "link 'step' cannot lag"),
    ("ppo", Plan(ENVS, {"decision": Link(1)}), "link 'decision' cannot lag"),
    ("ppo", Plan(ENVS, {"step": Link("latest")}), "link 'step' cannot take the latest"),
    ("ppo", Plan(APART, {"rollout": Link("latest")}), "link 'rollout' cannot take the latest"),
    ("ppo-unnormalised", motet.central(2, lag=1), "in the loop 'epochs'"),  # type: ignore[arg-type]
    ("dqn", motet.central(2, lag=1), "in the loop 'repeat'"),  # type: ignore[arg-type]
    ("impala", motet.central(2, lag=1), ""),  # type: ignore[arg-type]
    ("dqn", motet.central(2, lag="latest"), ""),
    ("dqn", motet.pearl(prefetch=3), ""),
    ("dqn-prioritised", motet.pearl(prefetch=3), ""),
    ("dqn-prioritised", Plan(motet.pearl().fragments, {"priorities": Link(2)}), ""),
    ("dqn-prioritised", Plan(motet.pearl().fragments, {"priorities": Link("latest")}), "every value of 'priorities'"),
    ("dqn", Plan(motet.pearl().fragments, {"sample": Link("latest")}), "link 'sample' cannot take the latest"),
    (
        "dqn-prioritised",
        Plan(motet.pearl().fragments, {"sample": Link("latest"), "priorities": Link("latest")}),
        "link 'sample' cannot take the latest",
    ),
    ("dqn", Plan(motet.pearl().fragments, {"rollout": Link(1)}), "link 'rollout' cannot lag"),
]


@pytest.mark.parametrize(("name", "plan", "said"), RULES)
def test_one_rule_says_which_links_may_lag(name: str, plan: Plan, said: str) -> None:
    found = violations(traced(ALGORITHMS[name], plan), plan)
    if said:
        assert any(said in each for each in found), found
    else:
        assert not found


def test_a_fragment_that_must_be_one_program_cannot_be_cut() -> None:
    plan = Plan({"actors": Fragment(("act", "env"), fused=True), "learner": Fragment(("*",))})
    found = violations(traced(ALGORITHMS["a2c"], plan), plan)
    assert any("'actors' must be one compiled program (fused), but it sends 'rollout'" in each for each in found), found
