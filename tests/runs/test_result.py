"""A result's history as arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import motet
from motet.result import Result


@pytest.fixture
def result() -> Result:
    made = object.__new__(Result)
    object.__setattr__(made, "history", [{"steps": 20, "return": None}, {"steps": 40, "return": 1.5}])
    return made


def test_a_column_has_a_number_for_each_row(result: Result) -> None:
    np.testing.assert_array_equal(result.column("return"), [np.nan, 1.5])
    np.testing.assert_array_equal(result.column("steps"), [20, 40])
    with pytest.raises(motet.UnknownName, match="Did you mean 'return'"):
        result.column("retrun")


def test_pandas_gets_the_same_rows(result: Result) -> None:
    frame = pytest.importorskip("pandas") and result.to_pandas()
    assert list(frame.columns) == ["steps", "return"] and list(frame["steps"]) == [20, 40]


def test_without_pandas_the_error_says_what_to_do(result: Result, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(motet.BadOption, match="pip install pandas"):
        result.to_pandas()
