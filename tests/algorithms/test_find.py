"""Algorithms are found by the name on the command line, and by the one that runs write down."""

import pytest

from motet.algorithms import ALGORITHMS, find


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_found_by_both_its_names(name: str) -> None:
    assert find(name) is find(name.upper()) is find(find(name).__name__)
    assert find(name).__name__ == ALGORITHMS[name]
