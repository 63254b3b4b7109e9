"""The breaks of `make mutations` fit the sources as they are, so that the whole list can be made."""

import re
from pathlib import Path

import pytest

import motet
from tests.mutations import MUTATIONS, NOT_YET, known, record

SOURCE = Path(motet.__file__).parent
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_break_has_one_place_and_tests_that_are_there(name: str) -> None:
    mutation = MUTATIONS[name]
    assert (SOURCE / mutation.file).read_text().count(mutation.right) == 1
    assert mutation.wrong != mutation.right and mutation.tests
    for test in mutation.tests:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text()
        assert not function or re.search(rf"^def {re.escape(function.partition('[')[0])}\(", text, re.MULTILINE), test


def test_the_record_keeps_what_was_not_made_again() -> None:
    first, second, third = list(MUTATIONS)[:3]
    before = record({first: (True, "tests/a.py::test_a", 1.0), second: (False, "", 1.0)})
    after = known(record({second: (True, "tests/b.py::test_b", 1.0)}, before))
    assert after[first] == "`tests/a.py::test_a`" and after[second] == "`tests/b.py::test_b`"
    assert after[third] == NOT_YET
