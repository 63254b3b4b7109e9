"""Run folders on a bad day: full disks, folders that vanish, names that two runs want."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import cli
from motet.runs import folder, policy

TINY = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
ARGS = ["--num-envs", "4", "--num-steps", "5", "--hidden", "4", "--total-timesteps", "80", "--preset", "anakin",
        "--evaluate-episodes", "2"]  # fmt: skip
NAMES = folder.Names("a2c", "CartPole-v1", {})
MOTET = [sys.executable, "-c", "import sys; from motet.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Full:
    """A file on a full disk."""

    write = full

    def close(self) -> None:
        full()


def test_metrics_that_cannot_be_written_do_not_end_a_run(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    begin = folder.Writer.begin

    def begins(writer: Any, *args: Any) -> None:
        begin(writer, *args)
        writer._metrics.close()
        writer._metrics = Full()

    monkeypatch.setattr(folder.Writer, "begin", begins)
    result = motet.train(TINY, "CartPole-v1", motet.anakin(), total_timesteps=80, run_dir="run")
    assert [warning.partition("ends early")[2] for warning in result.warnings] == [": No space left on device"]
    assert Path("run/policy.safetensors").exists()
    assert cli.main(["train", "a2c", "CartPole-v1", *ARGS, "--run-dir", "again"]) == 0
    assert "warning     " in capsys.readouterr().out


@pytest.mark.parametrize("trouble", ["full", "deleted"])
def test_a_policy_that_cannot_be_saved_is_saved_elsewhere(
    trouble: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    write = policy.write_whole

    def writes(file: Path, content: bytes) -> None:
        if trouble == "full" and "temporary" not in file.parts:
            full()
        if trouble == "deleted" and "temporary" not in file.parts:
            for each in file.parent.iterdir():
                each.unlink()
            file.parent.rmdir()
        write(file, content)

    monkeypatch.setattr(policy, "write_whole", writes)
    assert cli.main(["train", "a2c", "CartPole-v1", *ARGS, "--run-dir", "run"]) == 2
    said = capsys.readouterr().err
    (place,) = Path("temporary").iterdir()
    assert f"The policy cannot be saved in {tmp_path / 'run'}" in said
    assert f"It was saved in {tmp_path / place} instead." in said
    assert cli.main(["evaluate", str(place), "--episodes", "2"]) == 0


def test_a_policy_that_can_be_saved_nowhere_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "write_whole", full)
    with pytest.raises(motet.NotSaved, match="Nor can it elsewhere: No space left on device") as caught:
        motet.train(TINY, "CartPole-v1", motet.anakin(), total_timesteps=80, run_dir="run")
    assert caught.value.result.steps == 80
    assert not list(Path("run").glob("*.part"))


def test_a_limit_on_the_size_of_files_leaves_no_half_file(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
    program = [sys.executable, "-c", limit + MOTET[2]]
    done = subprocess.run(
        [*program, "train", "a2c", "CartPole-v1", *ARGS, "--hidden", "64", "--run-dir", "run"],
        capture_output=True, text=True, timeout=120, env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "The policy cannot be saved" in done.stderr and "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(Path("run").glob("policy*"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 3000


def test_a_folder_that_cannot_be_written_is_named_before_anything_runs(capsys: Any) -> None:
    Path("file").write_text("")
    for run_dir in ("file", "file/below"):
        assert cli.main(["train", "a2c", "CartPole-v1", *ARGS, "--run-dir", run_dir]) == 2
        said = capsys.readouterr().err
        assert "file" in said and "Traceback" not in said


def test_names_are_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda _: "now")
    assert [folder.fresh(Path("runs"), "a").name for _ in range(3)] == ["a-now", "a-now-2", "a-now-3"]


def test_a_folder_belongs_to_one_living_run() -> None:
    graph = motet.trace(TINY, motet.make("CartPole-v1"), total_timesteps=80)
    one, other = folder.Writer(Path("run")), folder.Writer(Path("run"))
    one.begin(graph, motet.anakin(), TINY, 0, NAMES)
    message = f"is in use by the run of process {os.getpid()}"
    with pytest.raises(motet.BadOption, match=message):
        other.begin(graph, motet.anakin(), TINY, 0, NAMES)
    with pytest.raises(motet.BadOption, match=message):
        folder.Writer(Path("run"))
    other.close()
    assert Path("run/running").exists()
    one.close()
    with pytest.raises(motet.BadOption, match="already holds something"):
        folder.Writer(Path("run"))
    assert json.loads(Path("run/config.json").read_text())["algorithm"] == "a2c"


def test_the_folder_of_a_dead_run_is_not_called_alive() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    Path("run").mkdir()
    Path("run/running").write_text(f"{dead.pid}\n")
    with pytest.raises(motet.BadOption, match="already holds something"):
        folder.Writer(Path("run"))


def test_names_that_are_wanted_at_once_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder.time, "strftime", lambda _: "now")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: folder.fresh(Path("runs"), "a"), range(64)))
    assert len(set(found)) == len(list(Path("runs").iterdir())) == 64
