"""Trackers are told what TensorBoard is told, and a run that is taken up again goes on in the same curves."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import motet
from motet.errors import Interrupted
from motet.runs import checkpoints, tracker
from tests.test_resume import StopAt

TINY = motet.PPO(num_envs=4, num_steps=8, update_epochs=1, num_minibatches=2, hidden=(8,))
STEPS = 320


class Library:
    """A tracker that writes down what it is told."""

    def __init__(self) -> None:
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.begun: list[dict[str, Any]] = []
        self.finished: list[Any] = []
        self.full = False

    def init(self, **how: Any) -> Any:
        self.begun.append(how)
        rows = self.runs.setdefault(how.get("id") or how["name"], [])

        def log(points: dict[str, Any], step: int | None = None) -> None:
            if self.full:
                raise OSError("no room")
            rows.append(points)

        return SimpleNamespace(
            log=log, define_metric=lambda *a, **b: None, finish=lambda **how: self.finished.append(how)
        )

    def finish(self) -> None:
        self.finished.append({})

    Settings = SimpleNamespace


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    for name in tracker.TRACKERS:
        monkeypatch.setitem(sys.modules, name, made)  # type: ignore[arg-type]
    return made


def train(folder: Path | None, track: str, **options: Any) -> motet.Result:
    given = {"eval_steps": 160, "eval_episodes": 2, "run_dir": folder, "track": track, "progress": False, **options}
    return motet.train(TINY, "CartPole-v1", motet.anakin(), total_timesteps=STEPS, **given)


@pytest.mark.parametrize("name", tracker.TRACKERS)
def test_a_resumed_run_goes_on_in_the_same_curves_and_tells_nothing_twice(
    name: str, library: Library, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(run, name, callbacks=[StopAt(3)])
    told = json.loads((run / "tracker.json").read_text())
    # As if the run had been killed later than its last checkpoint: what was told then is not told again.
    (run / "tracker.json").write_text(json.dumps({**told, "rows": told["rows"] + 64}))
    result = motet.resume(run, progress=False)
    assert not [each for each in result.warnings if name in each]
    ((rows),) = library.runs.values()
    steps = [row["global_step"] for row in rows if "charts/episodic_return" in row or "losses/loss" in row]
    assert steps == sorted(set(steps)) and steps[-1] == STEPS
    assert len(steps) == STEPS // 32 - 2
    assert [row["global_step"] for row in rows if "eval/return" in row] == [160, 320]
    assert {"charts/SPS", "losses/entropy", "charts/episodic_length"} <= {name for row in rows for name in row}
    assert all(how["resume"] == "allow" and how["config"]["options/num_envs"] == 4 for how in library.begun)
    assert len(library.begun) == len(library.finished) == 2
    assert json.loads((run / "config.json").read_text())["run"]["track"] == name


@pytest.mark.parametrize("name", tracker.TRACKERS)
def test_a_checkpoint_knows_the_run_of_the_tracker(name: str, library: Library, tmp_path: Path) -> None:
    """So that curves go on where nothing is left but the checkpoint: not what was noted beside it."""
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(run, name, callbacks=[StopAt(3)])
    noted = json.loads((run / "tracker.json").read_text())
    (run / "tracker.json").unlink()
    kept = checkpoints.read(checkpoints.all_of(run)[-1]).told["tracker"]
    assert kept == {part: noted[part] for part in ("tracker", "project", "id", "name")}
    motet.resume(run, progress=False)
    ((rows),) = library.runs.values()
    steps = [row["global_step"] for row in rows if "losses/loss" in row]
    assert steps == list(range(32, STEPS + 1, 32))
    assert json.loads((run / "tracker.json").read_text())["id"] == noted["id"]


def test_another_tracker_begins_a_run_of_its_own(library: Library, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(run, "wandb", callbacks=[StopAt(3)])
    (run / "tracker.json").unlink()
    motet.resume(run, progress=False, track="trackio")
    assert len(library.runs) == 2


def test_a_tracker_that_fails_ends_no_training(library: Library, tmp_path: Path) -> None:
    library.full = True
    result = train(tmp_path / "run", "wandb")
    assert result.steps == STEPS
    assert [each for each in result.warnings if "wandb was not told everything: OSError: no room" in each]


def test_one_that_cannot_begin_is_said_first(library: Library, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(library, "init", lambda **how: (_ for _ in ()).throw(RuntimeError("no account")))
    with pytest.raises(motet.BadOption, match="wandb cannot track this run: RuntimeError: no account"):
        train(tmp_path / "run", "wandb")


def test_one_that_is_not_there_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)  # type: ignore[arg-type]
    with pytest.raises(motet.BadOption, match=r"install it: pip install 'motet\[trackio\]'"):
        train(None, "trackio")
    with pytest.raises(motet.UnknownName, match=r"There is no tracker 'wnadb'\. Did you mean 'wandb'"):
        train(None, "wnadb")


def test_wandb_itself_takes_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(Interrupted):
        train(tmp_path / "run", "wandb", callbacks=[StopAt(3)])
    motet.resume(tmp_path / "run", progress=False)
    told = json.loads((tmp_path / "run/tracker.json").read_text())
    files = sorted((tmp_path / "run/wandb").glob(f"offline-run-*/run-{told['id']}.wandb"))
    assert len(files) == 2  # of one run: `wandb sync` puts them together
    rows = [row for file in files for row in offline_rows(file)]
    steps = [row["global_step"] for row in rows if "losses/loss" in row]
    assert steps == list(range(32, STEPS + 1, 32))
    assert [row["global_step"] for row in rows if "eval/return" in row] == [160, 320]


def offline_rows(file: Path) -> list[dict[str, Any]]:
    """The history in a file that W&B writes without a network."""
    from wandb.proto import wandb_internal_pb2

    rows = []
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            rows.append({each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items})
    return rows


def records(content: bytes) -> Iterator[bytes]:
    """Records as LevelDB logs them, after 7 bytes of a header: in blocks of 32 KiB, each piece behind its checksum (4
    bytes), length (2) and kind (1: whole; 2, 3, 4: first, middle, last piece)."""
    block, place, pieces = 1 << 15, 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        pieces += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield pieces
            pieces = b""


def test_trackio_itself_takes_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    with pytest.raises(Interrupted):
        train(tmp_path / "run", "trackio", callbacks=[StopAt(3)])
    motet.resume(tmp_path / "run", progress=False)
    (name,) = SQLiteStorage.get_runs("motet")
    rows = SQLiteStorage.get_logs("motet", name)
    steps = [row["step"] for row in rows if "losses/loss" in row]
    assert sorted(steps) == list(range(32, STEPS + 1, 32))
    assert sorted(row["step"] for row in rows if "eval/return" in row) == [160, 320]
