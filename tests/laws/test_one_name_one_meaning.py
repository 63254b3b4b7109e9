"""A class's name means one thing in all of motet; files and functions of the three inner rooms are short."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import motet

SOURCE = Path(motet.__file__).parent
TWICE = {
    "ActionRepeat": "a wrapper has a form for each kind of environment",
    "FrameDelta": "a wrapper has a form for each kind of environment",
    "RandomStart": "a wrapper has a form for each kind of environment",
    "Learner": "each algorithm's own learner state",
    "Params": "each algorithm's own parameters",
    "Device": "one that a machine has, as a value, and an OpenCL one at work, which only its store knows",
    "Pool": "environments that step together, and those that a profile steps to time them",
}
"""Names of several classes, and why."""
LONGEST_FILE, LONGEST_FUNCTION = 350, 60
"""Lines."""


def test_each_class_has_a_name_of_its_own() -> None:
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    doubles = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert not {name: paths for name, paths in doubles.items() if name not in TWICE}
    assert not TWICE.keys() - doubles.keys(), "these are no doubles any more"


@pytest.mark.parametrize("room", ["flow", "plan", "engine"])
def test_files_and_functions_are_short(room: str) -> None:
    long = []
    for path in sorted((SOURCE / room).rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > LONGEST_FILE:
            long.append(f"{path.name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{path.name}, {node.name}: {lines} lines")
    assert not long
