"""What a run leaves in its folder: for people, spreadsheets and TensorBoard; how runs are named and listed."""

from __future__ import annotations

import csv
import errno
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import cli
from motet.engine import usage
from motet.runs import finding, system
from motet.runs.claim import Claim
from motet.runs.finding import last_row, resolve_run
from motet.runs.tables import Events, Table
from tests.hardening.adds import TIMESTEPS, Adds
from tests.hardening.broken import Broken
from tests.runs.events import events, points

TINY = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
ARGS = ["a2c", "CartPole-v1", "--num-envs", "4", "--num-steps", "5", "--hidden", "4", "--total-timesteps", "160",
        "--evaluate-episodes", "0", "--preset", "anakin"]  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run below runs/, which the command line made."""
    folder, here = tmp_path_factory.mktemp("home"), Path.cwd()
    os.chdir(folder)
    try:
        assert cli.main(["train", *ARGS, "--seed", "3"]) == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def run(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return resolve_run("latest")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_table_has_the_rows_of_the_metrics(run: Path) -> None:
    with (run / "metrics.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    wanted = rows(run)
    assert list(table[0]) == list(wanted[0])
    assert [[float(value) if value else None for value in row.values()] for row in table] == [
        list(row.values()) for row in wanted
    ]


def test_the_curves_have_the_names_that_others_know(run: Path) -> None:
    found, metrics = points(run), rows(run)
    steps = [row["steps"] for row in metrics]
    for curve, column in (("charts/episodic_return", "return"), ("charts/episodic_length", "length"),
                          ("charts/SPS", "steps_per_second"), ("losses/policy_loss", "policy_loss"),
                          ("losses/entropy", "entropy")):  # fmt: skip
        wanted = [(step, row[column]) for step, row in zip(steps, metrics, strict=True) if row[column] is not None]
        assert [step for step, _ in found[curve]] == [step for step, _ in wanted]
        assert [value for _, value in found[curve]] == pytest.approx([value for _, value in wanted])
    assert not [curve for curve in found if curve.split("/")[1] in ("steps", "iteration", "seconds")]


def test_the_folder_says_how_it_came_about(run: Path) -> None:
    assert shlex.split((run / "command.txt").read_text()) == ["motet", "train", *ARGS, "--seed", "3"]
    about = json.loads((run / "system.json").read_text())
    assert about["versions"]["jax"] and about["cores"] == os.cpu_count() and about["memory_bytes"] > 2**20
    assert about["devices"][0]["platform"] == "cpu"
    assert json.loads((run / "state.json").read_text())["state"] == "finished"


def test_git_is_told_where_there_is_one(tmp_path: Path) -> None:
    assert system.git(tmp_path) is None
    settled = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*settled, "commit", "-q", "-m", "first", "--allow-empty"]):
        (tmp_path / "file").write_text("one")
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = system.git(tmp_path)
    assert clean and len(clean["commit"]) == 40 and clean["changed"] == 0
    (tmp_path / "file").write_text("another")
    assert system.git(tmp_path) == {**clean, "changed": 1}


def test_a_script_is_remembered_by_its_own_command() -> None:
    assert shlex.split(system.command()) == sys.orig_argv


def test_the_parts_of_a_run_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL", 0.0)
    seen = []

    class Seen(motet.Callback):
        def usage(self, usage: Any) -> None:
            seen.append(usage)

    motet.train(TINY, "CartPole-v1", motet.coarse(2), total_timesteps=160, run_dir=tmp_path / "run", callbacks=[Seen()])
    found = points(tmp_path / "run")
    for name in ("actors/iteration_seconds", "learner/computing", "actors/waiting/learner", "rollout/bytes_per_second",
                 "policy/depth", "policy/lag", "compile_seconds"):  # fmt: skip
        assert found[f"perf/{name}"], name
    last = seen[-1]
    assert {each["policy/lag"] for each in seen if "policy/lag" in each} == {0}
    assert last["actors/computing"] + sum(last[name] for name in last if "actors/waiting" in name) == pytest.approx(1)
    assert all(value >= 0 for each in seen for value in each.values())


class Full:
    """Whatever is written here does not fit."""

    def write(self, *what: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_event = write

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", [Table, Events])
def test_a_full_disk_ends_a_file_and_not_the_run(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = kind.begin

    def begins(writer: Any, run: Any) -> None:
        begin(writer, run)
        writer.close()
        writer._open = Full()

    monkeypatch.setattr(kind, "begin", begins)
    result = motet.train(TINY, "CartPole-v1", motet.anakin(), total_timesteps=80, run_dir=tmp_path / "run")
    assert [warning.partition("ends early: ")[2] for warning in result.warnings] == ["No space left on device"]
    assert (tmp_path / "run" / "policy.json").exists()


def test_a_run_that_goes_on_has_one_table_and_curves_without_a_way_back(tmp_path: Path) -> None:
    """As after a resume at step 40: rows beyond it are not in `metrics.jsonl` any more."""
    table, curves = Table(tmp_path), Events(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"steps": 20, "return": 1.0}\n{"steps": 40, "return": null}\n')
    begin: Any = type("Begin", (), {"first_step": 40})
    for each in (table, curves):
        each.begin(begin)
        each.row({"steps": 60, "return": 2.0})
        each.end(None)
    assert (tmp_path / "metrics.csv").read_text() == "steps,return\n20,1.0\n40,\n60,2.0\n"
    kinds = [(event.step, event.session_log.status) for event in events(tmp_path)]
    assert kinds == [(0, 0), (41, 1), (60, 0)], "TensorBoard drops what lies beyond a start"


def test_a_run_is_found_by_path_name_and_as_the_latest(run: Path) -> None:
    assert resolve_run(run) == resolve_run(run.name) == resolve_run("latest") == run
    assert cli.main(["evaluate", "latest", "--episodes", "2"]) == 0


def test_the_latest_is_the_one_that_began_last(tmp_path: Path) -> None:
    for age, name in enumerate(("b", "c", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        os.utime(tmp_path / name / "config.json", (age, age))
    assert resolve_run("latest", tmp_path).name == "a"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "There is no run's folder nothing"),
        ("file", "is a file"),
        ("empty", "holds no config.json"),
        ("latest", "There is no latest run"),
    ],
)
def test_what_is_no_run_is_refused(name: str, says: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("empty").mkdir()
    assert cli.main(["evaluate", name]) == 2
    assert says in capsys.readouterr().err


def test_a_folder_of_a_later_motet_is_refused(run: Path, tmp_path: Path, capsys: Any) -> None:
    config = {**json.loads((run / "config.json").read_text()), "format": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert cli.main(["evaluate", str(tmp_path)]) == 2
    assert "has format 2" in capsys.readouterr().err


def test_runs_are_listed_with_their_states(run: Path, tmp_path: Path, capsys: Any) -> None:
    base = tmp_path / "runs"
    config = (run / "config.json").read_text()
    pid, claims = os.getpid(), []
    states = {"done": ({"state": "finished"}, None), "stuck": ({}, None), "at-work": ({}, pid),
              "broken": ({"state": "failed", "error": "ValueError: no luck"}, None)}  # fmt: skip
    for age, (name, (state, process)) in enumerate(states.items()):
        folder = base / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config)
        (folder / "metrics.jsonl").write_text('{"steps": 40, "return": 21.5}\n{"steps": 6')
        if state:
            (folder / "state.json").write_text(json.dumps(state))
        if process:
            claims.append(Claim(folder))
        os.utime(folder / "config.json", (time.time() - 100 + age, time.time() - 100 + age))
    (base / "odd").mkdir()
    (base / "odd" / "config.json").write_text("[")
    assert cli.main(["runs", str(base)]) == 0
    for claim in claims:
        claim.release()
    said = capsys.readouterr().out
    listed = [line.split() for line in said.splitlines()[2:7]]
    assert [(row[0], row[1]) for row in listed] == [
        ("done", "finished"), ("stuck", "interrupted"), ("at-work", "running"), ("broken", "failed"),
        ("odd", "unreadable"),
    ]  # fmt: skip
    assert listed[0][2:4] == ["40/160", "21.5"] and listed[0][-1] == "anakin"
    assert "broken: ValueError: no luck" in said and "odd: " in said


def test_an_error_and_an_interrupt_leave_their_states(tmp_path: Path) -> None:
    class Raises(motet.Callback):
        def __init__(self, error: BaseException):
            self.error = error

        def row(self, row: Any) -> None:
            raise self.error

    for name, error in (("failed", ValueError("no luck")), ("interrupted", KeyboardInterrupt())):
        with pytest.raises(type(error)):
            motet.train(
                TINY, "CartPole-v1", motet.anakin(), total_timesteps=80, run_dir=tmp_path / name,
                callbacks=[Raises(error)],
            )  # fmt: skip
        assert finding.look(tmp_path / name).state == name


def test_the_last_row_is_found_at_the_end_of_a_long_file(tmp_path: Path) -> None:
    lines = [json.dumps({"steps": number, "filler": "x" * 100}) for number in range(2_000)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"steps": 2000, "fil')
    assert last_row(tmp_path)["steps"] == 1999


def test_a_program_that_asks_environments_says_how_long_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "INTERVAL", 0.0)
    seen = []

    class Seen(motet.Callback):
        def usage(self, usage: Any) -> None:
            seen.append(usage)

    def slow() -> Broken:
        return Broken("slow")

    motet.train(Adds(), slow, motet.multi_learner(1), total_timesteps=TIMESTEPS, callbacks=[Seen()])
    told = [each for each in seen if "learners/computing" in each]
    assert max(each["learners/waiting/environments"] for each in told) > 0.01  # most of the time is compiling here
    for each in told:
        assert each["learners/computing"] + each["learners/waiting/environments"] == pytest.approx(1)
