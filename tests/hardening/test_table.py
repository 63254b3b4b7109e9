"""The attack: one table of what is broken, the plan or command that meets it, and what must happen.

Every row is held to its exit code, its words, its time, to leaving no process, thread, descriptor or shared memory
behind, and to not having learned from a wrong row (`attack.hold`). `make attack` runs the rare rows too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from motet.engine import threads
from motet.envs import staff, thread
from motet.runs import host_evaluation
from tests.hardening import disks, environments, files, surroundings
from tests.hardening.attack import PLANS, Case, hold, parameters

TABLE: list[Case] = [*environments.CASES, *files.CASES, *disks.CASES, *surroundings.CASES]


@pytest.mark.parametrize("case", parameters(TABLE))
def test_what_must_happen(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((thread, "CLOSING"), (staff, "GRACE"), (threads, "GRACE")):
        monkeypatch.setattr(module, name, 0.3)
    monkeypatch.setattr(host_evaluation, "CLOSING", 3.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    hold(case, tmp_path)


def test_the_table_is_large_and_says_each_thing_once() -> None:
    names = [case.name for case in TABLE]
    assert len(set(names)) == len(names)
    assert sum(not case.rare for case in TABLE) >= 120
    assert {case.plan for case in TABLE if not case.rare} >= set(PLANS)
