"""What is compiled together, what is given away and what a fragment carries on, decided without a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

import motet
from motet.flow.graph import Graph, Node, walk
from motet.plan.liveness import Liveness, sent
from motet.plan.plan import Fragment, Plan
from motet.plan.project import Program, project
from motet.plan.schedule import Ask, Call, Keep, Operation, Rounds, Schedule, asks_inside, schedule
from tests.flow.test_besides import Patient
from tests.laws import host_envs
from tests.laws.cases import ALGORITHMS, PAIRS, PLANS, traced
from tests.published.walk import Walk

SMALL = motet.A2C(num_envs=4, num_steps=2, hidden=(4,))
ALONE = motet.multi_learner(1)


def of(graph: Graph, plan: Plan, compiled: bool = True) -> dict[str, tuple[Program, Schedule]]:
    found = {}
    for name, program in project(graph, plan).items():
        fragment = plan.fragments[name]
        inside = asks_inside(graph, fragment)
        found[name] = program, schedule(graph, program, fragment, inside=inside, compiled=compiled)
    return found


def words(operations: Iterable[Operation]) -> list[object]:
    """In short: a call is what is in it, in brackets."""
    return [
        [each.name, *words(each.body)] if isinstance(each, Rounds)  # type: ignore[arg-type]
        else f"({each.label})" if isinstance(each, Call)
        else f"{type(each).__name__} {each.node.name if isinstance(each, Ask | Keep) else each.wire.link}"
        for each in operations
    ]  # fmt: skip


def calls(operations: Sequence[Operation]) -> Iterator[Call]:
    for each in operations:
        if isinstance(each, Call):
            yield each
        elif isinstance(each, Rounds):
            yield from calls(each.body)  # type: ignore[arg-type]


def test_what_nothing_cuts_is_one_call_again_and_again() -> None:
    ((_, all_of_it),) = of(traced(ALGORITHMS["dqn"], motet.anakin()), motet.anakin()).values()
    assert words(all_of_it.start) == ["(init/learner + init/env + init/replay)", "(prefill)"]
    assert [call.once for call in calls(all_of_it.start)] == [True, False], "what fills a replay is long"
    assert words(all_of_it.body) == ["(unroll + remember + repeat)"]
    assert all_of_it.whole is not None and all_of_it.whole.donated == all_of_it.state
    assert all_of_it.state == ("env", "learner", "replay", "step.observation")


def test_between_two_messages_all_is_one_call() -> None:
    plan = motet.coarse(2, lag=1)
    (_, actors), (_, learner) = of(traced(ALGORITHMS["a2c"], plan), plan).values()
    assert words(actors.start) == ["Receive policy", "(init/env)"]
    assert words(actors.body) == ["Receive policy", "(unroll)", "Send rollout"]
    assert words(learner.body) == ["Receive rollout", "(gradient + apply)", "Send policy"]
    assert actors.whole is None and learner.whole is None
    (unroll,), (update,) = calls(actors.body), calls(learner.body)
    assert unroll.donated == ("env", "step.observation") and unroll.kept == ("policy",)
    assert update.donated == ("learner",) and "policy" in update.writes
    # A policy does not come in every iteration, so that the one before is a part of the state; a rollout does.
    assert actors.state == ("env", "policy", "step.observation") and learner.state == ("learner",)


def test_a_loop_that_messages_cut_stays_a_loop() -> None:
    (_, environments), (_, learner) = of(traced(ALGORITHMS["a2c"], motet.fine(2)), motet.fine(2)).values()
    assert ["unroll", "Receive decision", "(env)", "Send step"] in words(environments.body)
    assert ["unroll", "Receive step", "(act)", "Send decision"] in words(learner.body)


def test_a_replay_outside_of_xla_is_asked_between_calls() -> None:
    plan = motet.pearl(lag=0, replay="host")
    _, (_, replay), _ = of(traced(ALGORITHMS["dqn-prioritised"], plan), plan).values()
    assert words(replay.start)[-1] == ["prefill", "Receive rollout", "Keep remember"]
    assert words(replay.body)[-1] == ["repeat", "Receive priorities", "Keep reprioritize", "Keep sample", "Send sample"]
    assert not [*calls(replay.body)] and replay.state == ("priorities", "replay")


def test_host_environments_are_asked_inside_of_a_call_or_between_calls() -> None:
    graph = traced(SMALL, ALONE, motet.Gymnasium(host_envs.Corridor))
    ((_, inside),) = of(graph, ALONE).values()
    assert words(inside.body) == ["(unroll + gradient + apply)"] and inside.whole is not None and inside.whole.asks
    fragments = {name: replace(each, inside=False) for name, each in ALONE.fragments.items()}
    ((_, between),) = of(graph, replace(ALONE, fragments=fragments)).values()
    assert words(between.body) == [["unroll", "(act)", "Ask env"], "(gradient + apply)"] and between.whole is None
    assert "Ask init/env" in words(inside.start) and "Ask init/env" in words(between.start), "to open them is no step"
    assert inside.state == between.state


def test_for_a_debugger_every_node_is_a_call_of_its_own() -> None:
    graph = traced(SMALL, ALONE)
    ((_, each),) = of(graph, ALONE, compiled=False).values()
    assert words(each.body) == [["unroll", "(act)", "(env)"], "(gradient)", "(apply)"] and each.whole is None


def test_what_was_sent_is_not_given_away_though_it_is_replaced() -> None:
    """The actors replace `before` while the learner may not have read it yet."""
    fragments = {"actors": Fragment(("act", "env", "end"), replicas=2), "learner": Fragment(("*",))}
    plan = Plan(fragments, {"policy": motet.Link(1)})
    (_, actors), _ = of(traced(Patient(), plan, Walk()), plan).values()
    replacing = [call for call in calls(actors.body) if "before" in call.writes]
    assert replacing and all("before" in call.kept and "before" not in call.donated for call in replacing)


@pytest.mark.parametrize(("name", "plan"), PAIRS)
def test_nothing_is_lost_and_nothing_given_away_that_others_hold(name: str, plan: str) -> None:
    graph = traced(ALGORITHMS[name], PLANS[plan])
    ran = Counter[str]()
    for program, found in of(graph, PLANS[plan]).values():
        statements = (*program.start, *program.body)
        live = Liveness(graph, statements)
        for call in calls(found.operations):
            assert {*call.donated}.isdisjoint(sent(statements)) and {*call.donated}.isdisjoint(call.kept)
            assert {*call.donated, *call.kept} == live.exposed(call.body)
            assert {*call.donated} <= live.owned & {*call.writes}
        carried = live.exposed(program.body, sure=True)
        assert {*found.state} == {live.held_as(var) for var in carried}
        ran.update(nodes(found.operations))
    assert ran == Counter(item.name for item, _ in walk(graph.root) if isinstance(item, Node))


def nodes(operations: Iterable[object]) -> Iterator[str]:
    for each in operations:
        if isinstance(each, Node):
            yield each.name
        elif isinstance(each, Ask | Keep):
            yield each.node.name
        elif isinstance(each, Call | Rounds):
            yield from nodes(each.body)
