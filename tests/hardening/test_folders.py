"""Run folders: who gets a name that two runs want, and a policy that can be saved nowhere."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.runs import folder, policy
from motet.runs.callback import Beginning
from motet.runs.names import Names
from tests.hardening.adds import TIMESTEPS, Adds
from tests.hardening.broken import Broken

NAMES = Names("adds", "Broken", {})


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_policy_that_can_be_saved_nowhere_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "write_whole", full)
    with pytest.raises(motet.NotSaved, match="Nor can it elsewhere: No space left on device") as caught:
        motet.train(Adds(), Broken, motet.coarse(2), total_timesteps=TIMESTEPS, run_dir="run")
    assert caught.value.result.steps == TIMESTEPS


def test_names_are_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda _: "now")
    assert [folder.fresh(Path("runs"), "a").name for _ in range(3)] == ["a-now", "a-now-2", "a-now-3"]


def test_names_that_are_wanted_at_once_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda _: "now")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: folder.fresh(Path("runs"), "a"), range(64)))
    assert len(set(found)) == len(list(Path("runs").iterdir())) == 64


def test_a_folder_belongs_to_one_living_run() -> None:
    graph = motet.trace(Adds(), motet.make(Broken), total_timesteps=TIMESTEPS)
    one, other = folder.Writer(Path("run")), folder.Writer(Path("run"))
    run = Beginning(graph, motet.coarse(2), Adds(), 0, TIMESTEPS, NAMES)
    one.begin(run)
    message = f"is in use by the run of process {os.getpid()}"
    with pytest.raises(motet.BadOption, match=message):
        other.begin(run)
    with pytest.raises(motet.BadOption, match=message):
        folder.Writer(Path("run"))
    other.close()
    assert Path("run/running").exists()
    one.close()
    with pytest.raises(motet.BadOption, match="already holds something"):
        folder.Writer(Path("run"))
    assert json.loads(Path("run/config.json").read_text())["algorithm"] == "adds"
