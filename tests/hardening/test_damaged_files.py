"""Damaged or hostile files: one clear error, no traceback, no memory, no code of theirs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import motet
from motet import cli

DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a good run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    motet.train(motet.A2C(num_envs=4, num_steps=5, hidden=(8,)), "CartPole-v1", total_timesteps=40, run_dir=folder)
    return folder


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def policy(**changes: Any) -> Callable[[Path], None]:
    """Change fields of policy.json; a dotted name leads inside."""

    def damage(folder: Path) -> None:
        told = json.loads((folder / "policy.json").read_text())
        for name, value in changes.items():
            *way, last = name.split("__")
            place = told
            for each in way:
                place = place[each]
            place[last] = value
        (folder / "policy.json").write_text(json.dumps(told))

    return damage


def config(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        told = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**told, **changes}))

    return damage


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def arrays(change: Callable[[str, np.ndarray], np.ndarray | None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / "policy.safetensors"
        changed = {name: change(name, array) for name, array in load_file(file).items()}
        save_file({name: array for name, array in changed.items() if array is not None}, file)

    return damage


def cut(folder: Path) -> None:
    file = folder / "policy.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


BOX = {"kind": "Box", "low": 0.0, "high": 1.0, "shape": [4], "dtype": "float"}
DAMAGE = {
    "transposed": (arrays(lambda _, array: np.ascontiguousarray(array.T)), "should have shape"),
    "double": (arrays(lambda _, array: array.astype(np.float64)), "should have dtype float32, but has float64"),
    "whole": (arrays(lambda _, array: array.astype(np.int32)), "should have dtype float32, but has int32"),
    "nan": (arrays(lambda _, array: array * np.float32("nan")), "not finite"),
    "one array missing": (arrays(lambda name, array: None if "bias" in name else array), "its arrays should be"),
    "renamed": (lambda folder: save_file({"other": np.zeros(3)}, folder / "policy.safetensors"), "its arrays should"),
    "cut": (cut, "is damaged"),
    "policy empty": (text("policy.json", ""), "is damaged"),
    "policy a list": (text("policy.json", "[]"), "is damaged"),
    "policy deep": (text("policy.json", DEEP), "nested too deeply"),
    "policy with a long number": (text("policy.json", '{"iterations": ' + "9" * 5000 + "}"), "is damaged"),
    "policy of bytes": (lambda folder: (folder / "policy.json").write_bytes(b"\xff\xfe\x00") and None, "is damaged"),
    "hidden too wide": (policy(options__hidden=[10**30]), "is damaged"),
    "hidden of another width": (policy(options__hidden=[16]), "should have shape"),
    "hidden a word": (policy(options__hidden="wide"), "is damaged"),
    "unknown option": (policy(options__hiden=[8]), "its options fit no algorithm"),
    "options a list": (policy(options=[1, 2]), "is damaged"),
    "huge memory": (policy(options__core="gru", options__core_size=10**12), "is damaged"),
    "action count too large": (policy(action_space__n=10**12), "n should be a whole number"),
    "another action count": (policy(action_space__n=3), "should have shape"),
    "action count a word": (policy(action_space__n="two"), "n should be a whole number"),
    "huge choices": (policy(action_space={"kind": "MultiDiscrete", "nvec": [3_000_000_000]}), "nvec should be"),
    "a space of no kind": (policy(observation_space={"kind": "Torus"}), "there is no space 'Torus'"),
    "a space a number": (policy(observation_space=4), "a space should be an object"),
    "a huge box": (policy(observation_space={**BOX, "shape": [10**9, 10**9]}), "larger than anything"),
    "a negative box": (policy(observation_space={**BOX, "shape": [-4]}), "a shape should be"),
    "a box of objects": (policy(observation_space={**BOX, "dtype": "object"}), "cannot hold 'object'"),
    "a box with words": (policy(observation_space={**BOX, "low": "low"}), "bounds of a Box should be numbers"),
    "a box with few bounds": (policy(observation_space={**BOX, "low": [0.0, 1.0]}), "one bound or 4"),
    "iterations below 1": (policy(iterations=0), "iterations should be"),
    "config deep": (text("config.json", DEEP), "nested too deeply"),
    "config a number": (text("config.json", "3"), "is damaged"),
    "algorithm a number": (config(algorithm=3), "is damaged"),
    "algorithm a list": (config(algorithm=["ppo"]), "is damaged"),
    "algorithm unknown": (config(algorithm="pp0"), "Did you mean 'ppo'?"),
    "another algorithm": (config(algorithm="dqn"), "is damaged"),
    "environment a list": (config(environment=["CartPole-v1"]), "is damaged"),
    "environment a dictionary": (config(environment={"id": "CartPole-v1"}), "is damaged"),
    "environment unknown": (config(environment="CartPol-v1"), "Did you mean 'CartPole-v1'?"),
    "environment of other observations": (config(environment="Pendulum-v1"), "The policy was trained for observations"),
    "environment of other actions": (config(environment="gymnasium/CliffWalking-v1"), "The policy was trained for"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_one_clear_error(kind: str, run: Path, capsys: Any) -> None:
    damage, words = DAMAGE[kind]
    damage(run)
    assert cli.main(["evaluate", str(run), "--episodes", "1", "--workers", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("motet: ")
    assert words in err and "Traceback" not in err
    assert len(err) < 1500


def test_a_sound_run_is_evaluated(run: Path) -> None:
    assert cli.main(["evaluate", str(run), "--episodes", "1"]) == 0


@pytest.mark.parametrize("args", [["check-plan", "plan.json"], ["train", "a2c", "CartPole-v1", "--plan", "plan.json"]])
def test_a_plan_that_is_nested_too_deeply_is_refused(
    args: list[str], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(DEEP)
    assert cli.main(args) == 2
    assert "nested too deeply" in capsys.readouterr().err
