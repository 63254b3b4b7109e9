"""The table of names for users of other libraries: ours exist, and the command line suggests the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from motet import algorithms
from motet.cli.arguments import ELSEWHERE

PAGE = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text()
OPTIONS = {each.name for name in algorithms.ALGORITHMS for each in dataclasses.fields(algorithms.find(name))}


def rows() -> list[tuple[list[str], list[str]]]:
    """(our names, all others') of each row, as they stand in backticks."""
    found = []
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            ours, *others = line.strip("|").split("|")
            found.append((re.findall(r"`(\w+)`", ours), re.findall(r"`([\w-]+)`", " ".join(others))))
    return found


def test_there_is_a_table_of_names() -> None:
    assert len(rows()) > 35


@pytest.mark.parametrize("ours", [ours for ours, _ in rows()], ids=" ".join)
def test_our_names_are_options(ours: list[str]) -> None:
    assert ours and set(ours) <= OPTIONS


def test_the_command_line_suggests_what_the_table_says() -> None:
    meant = {}
    for ours, others in rows():
        for other in others:
            meant.setdefault("--" + other.strip("_").replace("_", "-"), set()).update(ours)
    shared = set(meant) & set(ELSEWHERE)
    assert len(shared) >= 10
    for flag in shared:
        assert ELSEWHERE[flag] in meant[flag], flag
