"""With every use of private JAX switched off, runs give the same numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import jax
import pytest

import motet
from motet.engine import cache
from motet.engine.cpu import callback, clone, plain, rules
from motet.engine.cpu.options import cpu_options
from motet.engine.cpu.switch import enabled
from tests.laws import host_envs
from tests.laws.cases import ALGORITHMS, PLANS, assert_close, learner, pair, run, traced
from tests.sharing import grouped

ENGINE = Path(motet.__file__).parent / "engine"
JAXPRS = Path(motet.__file__).parent / "flow" / "jaxprs.py"
"""What a jaxpr is made of, which JAX documents and promises to no later version; it has another way beside it."""
PRIVATE = ("jax._src", "jax.interpreters", "jax.core", "jax.extend", "jax.experimental")
PUBLIC = ("jax.experimental.compilation_cache",)
"""Documented: how the compilation cache is begun anew."""


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


@pytest.mark.parametrize("missing", [callback._primitive, clone._unpacker, rules._hashes, rules._products])
def test_a_version_of_jax_without_one_of_them_does_without(missing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {callback._primitive: callback, clone._unpacker: clone}.get(missing, rules)
    monkeypatch.setattr(module, missing.__name__, lambda: None)
    monkeypatch.setattr(rules, "_parameters", rules._parameters.__wrapped__)
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    outcome, _ = run(graph, plan, programs={})
    assert_close(learner(graph, outcome), learner(graph, pair("a2c", "coarse-2")[1]))


@pytest.mark.skipif(not enabled(), reason="it is turned already")
def test_the_switch_turns_all_of_them_off() -> None:
    program = jax.make_jaxpr(lambda x: x @ x)(jax.numpy.ones((2, 2))).jaxpr
    assert cpu_options(program, alone=False) and rules.lowering(eigen=True)
    assert asked_with() == {"motet_host_call"} and copied().packed is not None
    with plain():
        assert not cpu_options(program, alone=False) and not rules.lowering(eigen=True)
        assert asked_with() == {"io_callback"} and copied().packed is None


def asked_with() -> set[str]:
    """The operations with which a program calls Python."""
    aval = jax.ShapeDtypeStruct((), jax.numpy.float32)
    jaxpr = jax.make_jaxpr(lambda x: callback.host_call(lambda x: (x,), (aval,), x))(aval).jaxpr
    return {equation.primitive.name for equation in jaxpr.eqns}


def copied() -> clone.Template:
    """What programs of other devices would be made from, of a program that is new."""
    with cache.bypassed():
        program = jax.jit(lambda x: x + 1).lower(1.0).compile()
    return clone.template(clone.CompiledProgram(program, jax.devices()[0], {}, new=True))


def names_of_jax(text: str) -> set[str]:
    """Every name of JAX that a program has, in whole: imported, looked up step by step, or said in a string."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"\bjax\._src\b[\w.]*", node.value))
            found |= {node.value} if re.fullmatch(r"jax(\.\w+)+", node.value) else set()
    return {name for name in found if name.startswith("jax")}


def private(text: str) -> list[str]:
    """What a program has of private JAX, and options of XLA that it passes to a compiler."""
    flags = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"xla_(?!flags)\w+", node.value)
    }
    names = names_of_jax(text)
    return sorted({name for name in names if name.startswith(PRIVATE) and not name.startswith(PUBLIC)} | flags)


@pytest.mark.parametrize("path", sorted(Path(motet.__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_private_jax_is_used_in_one_folder_alone(path: Path) -> None:
    if path.parent.name == "cpu":
        return
    documented = ("jax.extend.core", "jax.core.eval_jaxpr") if path == JAXPRS else ()
    assert not [name for name in private(path.read_text()) if not name.startswith(documented)]


@pytest.mark.parametrize(
    "text",
    [
        "from jax._src import core",
        "from jax import _src",
        "import jax._src.xla_bridge as bridge",
        "import jax\njax._src.xla_bridge._backends",
        "import sys\nsys.modules.get('jax._src.xla_bridge')",
        "import importlib\nimportlib.import_module('jax.interpreters.mlir')",
        "import jax\njax.interpreters.mlir.lower_fun",
        "from jax.extend.core import Primitive",
        "options = {'xla_disable_hlo_passes': ''}",
    ],
)
def test_private_jax_is_found_however_it_is_named(text: str) -> None:
    assert private(text)
    assert not private("import jax\njax.lax.scan, 'jax_enable_x64'")
