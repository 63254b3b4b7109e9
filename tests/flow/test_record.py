"""How often a node is traced, and what it is taken to depend on."""

import collections

import pytest

import motet
from motet.flow.graph import Cut
from motet.flow.trace import trace

CUTS = (Cut(2), Cut(2, 2), Cut(4))
METHODS = ("init", "targets", "gradient", "apply")


def ppo(normalize_advantage: bool) -> motet.PPO:
    return motet.PPO(num_envs=8, num_steps=4, hidden=(8,), normalize_advantage=normalize_advantage)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often each method was traced."""
    counts: collections.Counter[str] = collections.Counter()
    for name in METHODS:
        method = getattr(motet.PPO, name)

        def counted(*args, name=name, method=method):
            counts[name] += 1
            return method(*args)

        monkeypatch.setattr(motet.PPO, name, counted)
        counted.__name__ = name  # a node is called as its method is
    return counts


@pytest.mark.parametrize(("statistics", "gradients"), [(True, 4), (False, 3)])
def test_cuts_that_a_node_cannot_tell_apart_have_one_trace(counts, statistics, gradients):
    """The state depends on no cut, the targets on the size of a piece; a statistic depends on who shares it too."""
    trace(ppo(statistics), motet.make("CartPole-v1"), cuts=CUTS)
    assert counts == {"init": 1, "targets": 3, "gradient": gradients, "apply": 1}


def test_axes_do_not_depend_on_the_cuts_that_were_asked_for():
    whole = trace(ppo(True), motet.make("CartPole-v1"))
    cut = trace(ppo(True), motet.make("CartPole-v1"), cuts=CUTS)
    assert {name: var.axes for name, var in whole.variables.items()} == {
        name: var.axes for name, var in cut.variables.items()
    }
    assert any(0 in var.axes for var in whole.variables.values())


def test_a_trace_may_be_asked_for_by_iterations():
    env = motet.make("CartPole-v1")
    assert trace(ppo(True), env, iterations=3).iterations == 3
    assert trace(ppo(True), env, total_timesteps=3 * 8 * 4 + 5).iterations == 3
    with pytest.raises(motet.BadOption, match="iterations must be at least 1, got 0"):
        trace(ppo(True), env, iterations=0)
