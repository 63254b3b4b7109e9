"""After tracing, the algorithm's methods are not called again."""

import pytest

import motet
from motet.flow.algorithm import Algorithm
from tests.laws.cases import ALGORITHMS, PLANS, assert_identical, learner, run, traced


@pytest.mark.parametrize(("name", "plan"), [("ppo", "anakin-1"), ("a2c", "fine-2"), ("dqn", "coarse-2")])
def test_training_runs_when_every_method_raises(name: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(ALGORITHMS[name], PLANS[plan])
    before, _ = run(graph, PLANS[plan])

    def gone(*args: object, **kwargs: object) -> None:
        raise AssertionError("a method of the algorithm was called after tracing")

    kind = type(ALGORITHMS[name])
    for owner in (each for each in kind.__mro__ if issubclass(each, Algorithm)):
        for method in ("init", "policy", "weights", "memory", "act", "targets", "gradient", "loss", "apply", "loop"):
            if method in vars(owner):
                monkeypatch.setattr(owner, method, gone)
    with pytest.raises(AssertionError, match="called after tracing"):
        motet.trace(ALGORITHMS[name], motet.make("CartPole-v1"))
    after, _ = run(graph, PLANS[plan], programs={})  # nothing that was compiled before
    assert_identical(learner(graph, before), learner(graph, after))
