"""Runs that are stopped and taken up again, as users do it: `motet.train` and `motet.resume` on a folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.errors import Interrupted, MotetError
from motet.runs import checkpoints
from motet.runs.folder import read_rows
from motet.runs.metrics import Row
from tests.laws.cases import assert_identical
from tests.sharing import sharing

PPO = motet.PPO(num_envs=4, num_steps=8, update_epochs=1, num_minibatches=2, hidden=(8,), anneal=True)
DQN = motet.DQN(
    num_envs=2, train_frequency=2, batch_size=8, buffer_size=64, learning_starts=40, hidden=(8,), prioritised=True
)
STEPS = 320  # of which an iteration of PPO is 32 and one of DQN 4


class StopAt(motet.Callback):
    """As if a signal came when a row of that iteration is written."""

    def __init__(self, iteration: int, number: int = signal.SIGINT):
        self.iteration, self.number = iteration, number

    def row(self, row: Row) -> None:
        if row["iteration"] == self.iteration:
            os.kill(os.getpid(), self.number)


def timeless(rows: Any) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name not in ("seconds", "steps_per_second")} for row in rows]


def stopped(folder: Path, algorithm: Any = PPO, env: Any = "CartPole-v1", plan: Any = None, **options: Any) -> Any:
    """A run that a signal ends in its middle -> what came of it until then."""
    with pytest.raises(Interrupted) as caught:
        motet.train(
            algorithm,
            env,
            plan,
            total_timesteps=STEPS,
            run_dir=folder,
            callbacks=[StopAt(3)],
            progress=False,
            **options,
        )
    return caught.value.result


@pytest.mark.parametrize(
    ("algorithm", "env", "plan"),
    [
        pytest.param(PPO, "CartPole-v1", motet.anakin(), id="ppo"),
        pytest.param(PPO, "CartPole-v1", motet.coarse(2, lag=1), id="ppo-coarse-lag"),
        pytest.param(DQN, "CartPole-v1", motet.pearl(lag=1, prefetch=1, replay="host"), id="dqn-pearl-host"),
    ],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    algorithm: Any, env: str, plan: motet.Plan, tmp_path: Path
) -> None:
    whole = motet.train(algorithm, env, plan, total_timesteps=STEPS, run_dir=tmp_path / "whole", progress=False)
    part = stopped(tmp_path / "run", algorithm, env, plan)
    assert 3 <= part.iterations < whole.iterations
    resumed = motet.resume(tmp_path / "run", progress=False)
    assert resumed.steps == whole.steps and not resumed.warnings
    assert_identical(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state))
    assert timeless(whole.history) == timeless(resumed.history)
    assert timeless(read_rows(tmp_path / "run")) == timeless(read_rows(tmp_path / "whole")), "each row once, in order"
    assert whole.links == resumed.links


def test_another_process_goes_on_the_same_way(tmp_path: Path) -> None:
    """The oracle: the run that wrote the checkpoint, gone on; and a new process that begins with the file."""
    whole = motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=tmp_path / "whole", progress=False, seed=5)
    stopped(tmp_path / "run", seed=5)
    command = [sys.executable, "-m", "motet", "resume", str(tmp_path / "run"), "--evaluate-episodes", "0"]
    command += ["--devices", str(jax.device_count())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert timeless(read_rows(tmp_path / "run")) == timeless(whole.history)
    one, other = (checkpoints.read(checkpoints.all_of(tmp_path / name)[-1]) for name in ("whole", "run"))
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)


@pytest.mark.parametrize("plan", [motet.coarse(2), motet.anakin(2), motet.fine(2)], ids=lambda plan: plan.name)
@sharing("another plan")
def test_a_run_goes_on_under_another_plan(plan: motet.Plan, tmp_path: Path) -> None:
    whole = motet.train(PPO, "CartPole-v1", motet.anakin(), total_timesteps=STEPS, progress=False)
    stopped(tmp_path / "run", plan=motet.anakin())
    resumed = motet.resume(tmp_path / "run", plan=plan, progress=False)
    assert "under another plan" in " ".join(resumed.warnings)
    for left, right in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5)
    back = motet.resume(tmp_path / "run", plan=motet.anakin(), total_timesteps=2 * STEPS, progress=False)
    assert back.steps == 2 * STEPS


def test_a_plan_with_lag_begins_with_what_the_cut_knows(tmp_path: Path) -> None:
    stopped(tmp_path / "run", DQN, plan=motet.anakin())
    resumed = motet.resume(tmp_path / "run", plan=motet.pearl(2, lag=1, prefetch=2), progress=False)
    lags = {link.link: dict(link.lags) for link in resumed.links}
    assert set(lags["policy"]) == {1} and set(lags["priorities"]) == {2}


def test_a_replay_that_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "run", DQN, plan=motet.anakin())
    with pytest.raises(MotetError, match="lies inside of XLA, and this plan wants it outside"):
        motet.resume(tmp_path / "run", plan=motet.pearl(replay="host"), progress=False)


def test_host_environments_begin_new_episodes_and_nothing_false_is_learned(tmp_path: Path) -> None:
    """The first step after a resume was decided on for episodes that are gone: it is marked, never learned from."""
    algorithm = replace(PPO, num_envs=2)
    stopped(tmp_path / "run", algorithm, "gymnasium/CartPole-v1")
    result = motet.resume(tmp_path / "run", progress=False)
    assert any("began new episodes" in warning for warning in result.warnings)
    assert result.steps == STEPS
    again = motet.resume(tmp_path / "run", total_timesteps=2 * STEPS, progress=False)
    assert again.steps == 2 * STEPS and np.isfinite(again.metrics["loss"])
    told = [checkpoints.about(path) for path in checkpoints.all_of(tmp_path / "run")]
    assert told[-1]["resumes"] == 2, "so that other episodes come than after the first time"


def test_total_timesteps_may_grow_and_schedules_are_stretched(tmp_path: Path) -> None:
    motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=tmp_path, progress=False)
    with pytest.raises(MotetError, match="nothing left to do"):
        motet.resume(tmp_path, progress=False)
    result = motet.resume(tmp_path, total_timesteps=2 * STEPS, progress=False)
    assert result.steps == 2 * STEPS
    assert any("schedules" in warning for warning in result.warnings)
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 2 * STEPS


def test_rows_after_the_cut_are_dropped_once(tmp_path: Path) -> None:
    """A log never goes back in time, wherever the process died."""
    whole = motet.train(
        PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=tmp_path, progress=False, checkpoint_steps=96, keep=9
    )
    assert [int(path.name) for path in checkpoints.all_of(tmp_path)] == [3, 6, 9, 10]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 11, "st')  # as a process leaves it that is killed
    result = motet.resume(tmp_path, iteration=6, progress=False)
    assert timeless(result.history) == timeless(whole.history)
    assert [row["iteration"] for row in read_rows(tmp_path)] == list(range(1, 11))
    assert [int(path.name) for path in checkpoints.all_of(tmp_path)] == [3, 6, 10]


def test_the_last_checkpoints_remain_and_the_best(tmp_path: Path) -> None:
    options: dict[str, Any] = {"total_timesteps": STEPS, "progress": False}
    motet.train(PPO, "CartPole-v1", run_dir=tmp_path, checkpoint_steps=32, keep=2, **options)
    left = [int(path.name) for path in checkpoints.all_of(tmp_path)]
    rows = {row["iteration"]: row["return"] for row in read_rows(tmp_path)}
    best = max((value, int(number or 0)) for number, value in rows.items() if value is not None)[1]
    assert left == sorted({9, 10, best})
    motet.train(PPO, "CartPole-v1", run_dir=tmp_path / "none", keep=0, **options)
    assert not (tmp_path / "none" / "checkpoints").exists()


def test_sigterm_saves_too(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as caught:
        motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=tmp_path, callbacks=[StopAt(2, signal.SIGTERM)])
    assert caught.value.signal == signal.SIGTERM
    assert checkpoints.all_of(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    stopped(folder)
    return folder


def damaged(run: Path, to: Path, file: str, change: Any) -> Path:
    """A copy of a run, of whose newest checkpoint one file is another."""
    shutil.copytree(run, to)
    path = checkpoints.all_of(to)[-1] / file
    content = change(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    return to


def _flip(content: bytes) -> bytes:
    middle = len(content) - len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


HEADER = (2**62).to_bytes(8, "little")
DAMAGE = {
    "gone": lambda content: None,
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "altered": _flip,
    "longer": lambda content: content + b"\0",
    "nonsense": lambda content: os.urandom(256),
    "hostile header": lambda content: HEADER + content[8:],
    "nested": lambda content: b"[" * 100_000,
}


@pytest.mark.parametrize("file", ["state.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused(run: Path, tmp_path: Path, file: str, damage: str) -> None:
    copy = damaged(run, tmp_path / "run", file, DAMAGE[damage])
    before = sorted(path.name for path in copy.rglob("*"))
    with pytest.raises(MotetError, match="damaged"):
        motet.resume(copy, progress=False)
    assert sorted(path.name for path in copy.rglob("*")) == before, "nothing is lost"


def rewritten(run: Path, to: Path, change: Any) -> Path:
    """A copy whose newest checkpoint says something else, with hashes that fit."""
    shutil.copytree(run, to)
    path = checkpoints.all_of(to)[-1]
    told = json.loads((path / "checkpoint.json").read_text())["told"]
    change(told)
    text = json.dumps({"told": told, "sha256": checkpoints._hash(told)})
    (path / "checkpoint.json").write_text(text)
    return to


def _first_array(told: Any) -> str:
    """The name of an array of the learner's state."""
    return f"{next(iter(told['cut']['workers']))}/variable/learner/0"


LIES: dict[str, Any] = {
    "no cut": lambda told: told.pop("cut"),
    "no worker": lambda told: told["cut"].update(workers={}),
    "an iteration that is none": lambda told: told["cut"].update(iteration=-3),
    "a worker of another plan": lambda told: told["cut"]["workers"].update(x=told["cut"]["workers"].pop("anakin", {})),
    "a variable less": lambda told: next(iter(told["cut"]["workers"].values()))["variables"].pop("learner"),
    "a key of no type": lambda told: told["cut"].update(keys={_first_array(told): "evil"}),
    "metrics of nothing": lambda told: told["cut"].update(watched={}),
    "a list": lambda told: told.update(cut=[]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_checkpoint_that_says_what_is_not_so_is_refused(run: Path, tmp_path: Path, lie: str) -> None:
    copy = rewritten(run, tmp_path / "run", LIES[lie])
    with pytest.raises(MotetError):
        motet.resume(copy, progress=False)


def test_a_later_format_is_named_as_such(run: Path, tmp_path: Path) -> None:
    copy = rewritten(run, tmp_path / "run", lambda told: told.update(format=99))
    with pytest.raises(MotetError, match=r"later version of motet \(format 99"):
        motet.resume(copy, progress=False)


def test_mistakes_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(MotetError, match=r"no run's folder"):
        motet.resume(tmp_path, progress=False)
    with pytest.raises(MotetError, match=r"a run of ppo, and cannot go on with dqn"):
        motet.resume(run, algorithm=DQN, progress=False)
    with pytest.raises(MotetError, match=r"a run on CartPole-v1, and cannot go on with Acrobot-v1"):
        motet.resume(run, env="Acrobot-v1", progress=False)
    with pytest.raises(MotetError, match=r"no checkpoint after iteration 77; there are those after"):
        motet.resume(run, iteration=77, progress=False)
    with pytest.raises(MotetError, match="exclude each other"):
        motet.resume(run, checkpoint_steps=5, checkpoint_seconds=5.0, progress=False)
    shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(MotetError, match="holds no checkpoint to go on from"):
        motet.resume(tmp_path / "bare", progress=False)


def test_a_folder_in_use_is_refused(run: Path, tmp_path: Path) -> None:
    from motet.runs.claim import Claim

    copy = shutil.copytree(run, tmp_path / "run")
    claim = Claim(Path(copy))
    try:
        with pytest.raises(MotetError, match=f"in use by the run of process {os.getpid()}"):
            motet.resume(copy, progress=False)
    finally:
        claim.release()
    (Path(copy) / "running").write_text(
        f"{os.getpid()}\n"
    )  # left by a process that was killed, whose number came again
    motet.resume(copy, progress=False)


def test_a_full_disk_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from motet.runs import arrays

    real, count = arrays.write, iter(range(100))

    def write(file: Path, content: Any) -> str:
        if next(count) in (1, 2):
            file.write_bytes(b"half of it")
            raise OSError(28, "No space left on device")
        return real(file, content)

    monkeypatch.setattr(arrays, "write", write)
    options: dict[str, Any] = {"checkpoint_steps": 64, "keep": 9, "run_dir": tmp_path, "progress": False}
    result = motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, **options)
    assert result.steps == STEPS
    full = [warning for warning in result.warnings if "No space left on device" in warning]
    assert len(full) == 2 and "those before it are as they were" in full[0]
    left = checkpoints.all_of(tmp_path)
    assert len(left) >= 2 and all(checkpoints.read(path) for path in left)
    assert not [path for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")]


KILL = """
import os, signal, sys, motet
class Kill(motet.Callback):
    def row(self, row):
        if row["iteration"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
ppo = motet.PPO(num_envs=4, num_steps=8, update_epochs=1, num_minibatches=2, hidden=(8,), anneal=True)
motet.train(ppo, "CartPole-v1", total_timesteps=320, run_dir=sys.argv[1], callbacks=[Kill()], eval_steps=32)
"""


def test_a_run_that_was_killed_before_it_was_saved_begins_once_more(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    ended = subprocess.run([sys.executable, "-c", KILL, str(run)], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not checkpoints.all_of(run) and read_rows(run)
    with pytest.raises(MotetError, match=rf"already holds something.*`motet resume {run}` goes on"):
        motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=run)
    stranded = set(run.glob("events.out.*"))
    resumed = motet.resume(run, progress=True)
    assert "had not been saved yet, and so it began once more" in " ".join(resumed.warnings)
    assert "had not been saved yet" in capsys.readouterr().out.splitlines()[1]
    assert not stranded & set(run.glob("events.out.*"))
    whole = motet.train(PPO, "CartPole-v1", motet.anakin(), total_timesteps=STEPS, progress=False)
    assert_identical(jax.device_get(resumed.state), jax.device_get(whole.state))
    assert [row["iteration"] for row in read_rows(run)] == list(range(1, 11))
    assert len((run / "evaluations.jsonl").read_text().splitlines()) == 10
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(MotetError, match="holds no checkpoint to go on from"):  # it came to its end: nothing was lost
        motet.resume(run, total_timesteps=2 * STEPS, progress=False)


def test_a_run_that_was_to_keep_nothing_does_not_begin_once_more_by_itself(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "policy.*"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "run": {**config["run"], "keep": 0}}))
    with pytest.raises(MotetError, match="holds no checkpoint to go on from"):
        motet.resume(copy, progress=False)


def test_a_folder_of_a_run_that_was_killed_before_its_first_file_is_free(tmp_path: Path) -> None:
    (tmp_path / "running").write_text("1\n")
    (tmp_path / "config.json.part").write_text("{")
    result = motet.train(PPO, "CartPole-v1", total_timesteps=STEPS, run_dir=tmp_path, progress=False)
    assert result.steps == STEPS and not list(tmp_path.glob("*.part"))


BOUND = """
import ctypes, os, sys
if os.geteuid() == 0:
    drop_from_bounding_set, dac_override = 24, 1
    ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command for which the permissions of folders bind root as they bind others."""


def test_a_folder_that_may_not_be_written_is_said_before_anything_starts(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    command = [sys.executable, "-c", BOUND, sys.executable, "-m", "motet"]
    again = [*command, "resume", str(copy), "--evaluate-episodes", "0"]
    new = [*command, "train", "ppo", "CartPole-v1", "--total-timesteps", "5_000", "--run-dir", str(copy / "new")]
    copy.chmod(0o555)
    try:
        for arguments, folder in ((again, copy), (new, copy / "new")):
            ended = subprocess.run(arguments, capture_output=True, text=True)
            assert ended.returncode == 2, ended
            assert f"The run's folder {folder} cannot be written: Permission denied" in ended.stderr
            assert "compiling" not in ended.stdout
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    finally:
        copy.chmod(0o755)


def test_halves_of_checkpoints_are_removed_when_a_run_goes_on(tmp_path: Path) -> None:
    for iteration in (1, 2, 3):
        checkpoints.save(tmp_path, iteration, {}, {"a": np.zeros(2)})
    for name in (".new-0000000004", ".old-0000000001"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "state.safetensors").write_bytes(b"half")
    assert [int(path.name) for path in checkpoints.all_of(tmp_path)] == [1, 2, 3]
    checkpoints.forget_after(tmp_path, 2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0000000001", "0000000002"]


@pytest.mark.parametrize("plan", [motet.anakin(), motet.coarse(2, lag=1)], ids=["anakin", "coarse"])
def test_a_run_that_was_killed_between_its_last_checkpoint_and_its_policy_gets_it(plan: Any, tmp_path: Path) -> None:
    algorithm = motet.PPO(num_envs=4, num_steps=8, update_epochs=1, num_minibatches=2, hidden=(8,))
    motet.train(algorithm, "CartPole-v1", plan, total_timesteps=160, run_dir=tmp_path / "run", progress=False)
    policy, rows = tmp_path / "run/policy.safetensors", tmp_path / "run/metrics.jsonl"
    before = policy.read_bytes(), rows.read_text()
    policy.unlink()
    assert motet.resume(tmp_path / "run", progress=False).steps == 160
    assert (policy.read_bytes(), rows.read_text()) == before
    with pytest.raises(motet.BadOption, match="nothing left to do"):
        motet.resume(tmp_path / "run", progress=False)
