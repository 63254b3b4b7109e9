"""A new preset, written here in a few lines, trains what it has never heard of."""

import inspect

import pytest

import motet
from motet.plan.plan import Fragment, Link, Plan
from tests.laws.cases import ALGORITHMS, assert_close, learner, run, traced


def orchestra(environments: int = 2, lag: int = 0) -> Plan:
    """Environments, policy and learning, each in a place of its own."""
    return Plan(
        {
            "environments": Fragment(("env",), replicas=environments),
            "policy": Fragment(("act",)),
            "learning": Fragment(("*",)),
        },
        {"policy": Link(lag)},
        name="orchestra",
    )


def test_the_preset_is_under_thirty_lines() -> None:
    assert len(inspect.getsource(orchestra).splitlines()) < 30


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_preset_from_a_test_trains(name: str) -> None:
    graph = traced(ALGORITHMS[name], orchestra())
    state = learner(graph, run(graph, orchestra())[0])
    fused = traced(ALGORITHMS[name], motet.anakin())
    assert_close(state, learner(fused, run(fused, motet.anakin())[0]))


def test_it_may_lag_too() -> None:
    plan = orchestra(lag=1)
    graph = traced(ALGORITHMS["ppo"], plan, iterations=4)
    outcome, _ = run(graph, plan, iterations=4)
    assert {flown.link: set(flown.lags) for flown in outcome.links}["policy"] == {1}
