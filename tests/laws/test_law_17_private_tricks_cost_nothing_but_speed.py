"""With every use of private JAX switched off, runs give the same numbers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.engine.cpu import callback, clone, hashes, plain
from motet.engine.cpu.options import cpu_options
from motet.engine.cpu.switch import enabled
from tests.laws import host_envs
from tests.laws.cases import ALGORITHMS, PLANS, assert_close, learner, pair, run, traced
from tests.sharing import grouped

ENGINE = Path(motet.__file__).parent / "engine"
PRIVATE = ("jax._src", "jax.interpreters", "jax.core", "jax.extend", "jax.experimental")
PUBLIC = ("jax.extend.core", "jax.experimental.compilation_cache")
"""Documented: what a jaxpr is made of, and how the compilation cache is begun anew."""


@pytest.mark.parametrize(
    ("name", "plan"), grouped([("ppo", "anakin-1"), ("ppo", "coarse-2"), ("dqn", "fine-2"), ("ppo", "anakin-4")])
)
def test_runs_without_private_jax_give_the_same_numbers(name: str, plan: str) -> None:
    graph, outcome, rows = pair(name, plan)
    with plain():
        other, others = run(graph, PLANS[plan], programs={})
    assert_close(learner(graph, outcome), learner(graph, other))
    assert_close(rows.seen, others.seen)


def test_programs_ask_host_environments_by_public_means_too() -> None:
    plan = motet.multi_learner(1)
    algorithm = motet.PPO(num_envs=2, num_steps=4, num_minibatches=2, update_epochs=1, hidden=(4,))
    graph = traced(algorithm, plan, motet.Gymnasium(host_envs.Corridor), iterations=3)
    outcome, _ = run(graph, plan, programs={})
    with plain():
        other, _ = run(graph, plan, programs={})
    assert_close(learner(graph, outcome), learner(graph, other))


@pytest.mark.parametrize("missing", [callback._primitive, clone._unpacker, hashes._parameters])
def test_a_version_of_jax_without_one_of_them_does_without(missing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {callback._primitive: callback, clone._unpacker: clone, hashes._parameters: hashes}[missing]
    monkeypatch.setattr(module, missing.__name__, lambda: None)
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    outcome, _ = run(graph, plan, programs={})
    assert_close(learner(graph, outcome), learner(graph, pair("a2c", "coarse-2")[1]))


@pytest.mark.skipif(not enabled(), reason="it is turned already")
def test_the_switch_turns_all_of_them_off() -> None:
    import jax

    program = jax.make_jaxpr(lambda x: x @ x)(jax.numpy.ones((2, 2))).jaxpr
    assert cpu_options(program, alone=False) and hashes.lowering()
    with plain():
        assert not cpu_options(program, alone=False) and not hashes.lowering()


def imports(path: Path) -> set[str]:
    """Every name that a file imports, in whole."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


@pytest.mark.parametrize("path", sorted(Path(motet.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_private_jax_is_used_in_one_folder_alone(path: Path) -> None:
    if path.parent.name == "cpu":
        return
    assert not [name for name in imports(path) if name.startswith(PRIVATE) and not name.startswith(PUBLIC)]
