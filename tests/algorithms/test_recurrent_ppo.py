"""PPO with a memory: the same under every plan, and its sequences are what it acted on."""

from __future__ import annotations

import pytest

import motet
from tests.laws.cases import assert_close, learner, run, traced

OPTIONS = {"num_envs": 8, "num_steps": 8, "update_epochs": 2, "num_minibatches": 2, "hidden": (8,), "core_size": 8}


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_every_plan_gives_the_same_parameters(core: str) -> None:
    algorithm = motet.PPO(core=core, **OPTIONS)  # type: ignore[arg-type]
    plans = (motet.anakin(), motet.coarse(2) if core == "gru" else motet.anakin(2))
    states = []
    for plan in plans:
        graph = traced(algorithm, plan)
        states.append(learner(graph, run(graph, plan)[0]))
    for state in states[1:]:
        assert_close(state, states[0])


def test_learning_starts_from_what_acting_remembered() -> None:
    """In the first pass over a rollout the new policy is the old one, so nothing has diverged: sequences, memories
    and resets are those of acting. Episodes of a few steps end inside of the rollouts."""
    algorithm = motet.PPO(core="gru", **{**OPTIONS, "update_epochs": 1, "num_minibatches": 1})  # type: ignore[arg-type]
    plan = motet.anakin()
    graph = traced(algorithm, plan, iterations=4)
    _, watcher = run(graph, plan, iterations=4)
    names = [name for report in graph.reports for name in _names(graph, report.var)]
    divergence = [row[names.index("kl")] for row in watcher.seen]
    assert max(map(abs, divergence)) < 1e-6
    assert sum(row[0] for row in watcher.seen) > 0  # some episodes ended, so memories began anew


def _names(graph: motet.Graph, var: str) -> list[str]:
    shape = graph.variables[var].unpack(graph.variables[var].avals)
    return sorted(shape) if isinstance(shape, dict) else [var]


def test_sequences_that_do_not_divide_are_refused() -> None:
    with pytest.raises(motet.BadOption, match="whole sequences"):
        motet.trace(motet.PPO(core="gru", num_envs=6, num_minibatches=4), motet.make("CartPole-v1"))
