"""An algorithm's file says nothing of where it runs."""

import ast
import re
from pathlib import Path

import pytest

import motet.algorithms

FILES = sorted(Path(motet.algorithms.__file__).parent.glob("*.py"))
BANNED = re.compile(
    r"(^|_)(jit|pmap|shard|shards|sharding|mesh|device|devices|axis_name|psum|pmean|ray|thread|threading|queue|"
    r"process|multiprocessing|rank|replica|replicas)($|_)"
)


def identifiers(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {part for alias in node.names for part in alias.name.split(".")}
            names |= set((getattr(node, "module", None) or "").split("."))
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_algorithm_names_a_place(path: Path) -> None:
    found = {name for name in identifiers(ast.parse(path.read_text())) if BANNED.search(name)}
    assert not found


def test_the_lint_would_see_a_violation() -> None:
    for line in (
        "jax.jit(f)",
        "jax.lax.pmean(x, 'i')",
        "import threading",
        "from jax.sharding import Mesh",
        "x.device",
    ):
        assert any(BANNED.search(name.lower()) for name in identifiers(ast.parse(line))), line
