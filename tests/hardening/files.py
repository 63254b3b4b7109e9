"""The table's rows of damaged or hostile files: one clear error, no traceback, no memory, no code of theirs."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import motet
from tests.hardening.attack import Case, Ended, command

DEEP = "[" * 100_000
DEEP_OBJECT = '{"fragments":' * 100_000
LONG = "9" * 5000
Damage = Callable[[Path], object]


@functools.cache
def _sound() -> dict[str, bytes]:
    """The files of a good run, made once a process."""
    folder = Path("sound").absolute()
    motet.train(motet.A2C(num_envs=4, num_steps=5, hidden=(8,)), "CartPole-v1", total_timesteps=40, run_dir=folder)
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    shutil.rmtree(folder)
    return files


def policy(**changes: Any) -> Damage:
    """Change fields of policy.json; two underscores lead inside."""

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


def config(**changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        told = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**told, **changes}))

    return damage


def text(name: str, content: str | bytes) -> Damage:
    content = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(content)


def arrays(change: Callable[[str, np.ndarray], np.ndarray | None]) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / "policy.safetensors"
        changed = {name: change(name, array) for name, array in load_file(file).items()}
        save_file({name: array for name, array in changed.items() if array is not None}, file)

    return damage


def cut(folder: Path) -> None:
    file = folder / "policy.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def swollen(folder: Path) -> None:
    """A header that promises an array of a terabyte."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    (folder / "policy.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def hostile(folder: Path) -> None:
    """Names a module that says so if it is ever imported."""
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    config(environment="evil:Env")(folder)


BOX = {"kind": "Box", "low": 0.0, "high": 1.0, "shape": [4], "dtype": "float"}
RUNS: dict[str, tuple[Damage, str]] = {
    "transposed": (arrays(lambda _, array: np.ascontiguousarray(array.T)), "should have shape"),
    "double": (arrays(lambda _, array: array.astype(np.float64)), "should have dtype float32, but has float64"),
    "whole": (arrays(lambda _, array: array.astype(np.int32)), "should have dtype float32, but has int32"),
    "nan": (arrays(lambda _, array: array * np.float32("nan")), "not finite"),
    "infinite": (arrays(lambda _, array: array + np.float32("inf")), "not finite"),
    "one array missing": (arrays(lambda name, array: None if "bias" in name else array), "its arrays should be"),
    "renamed": (lambda folder: save_file({"other": np.zeros(3)}, folder / "policy.safetensors"), "its arrays should"),
    "no arrays": (lambda folder: save_file({}, folder / "policy.safetensors"), "its arrays should"),
    "cut": (cut, "is damaged"),
    "empty": (text("policy.safetensors", ""), "is damaged"),
    "noise": (text("policy.safetensors", bytes(range(256)) * 9), "is damaged"),
    "swollen": (swollen, "is damaged"),
    "gone": (lambda folder: (folder / "policy.safetensors").unlink(), "policy.safetensors"),
    "policy gone": (lambda folder: (folder / "policy.json").unlink(), "holds no policy"),
    "config gone": (lambda folder: (folder / "config.json").unlink(), "is no run's folder"),
    "policy empty": (text("policy.json", ""), "is damaged"),
    "policy a list": (text("policy.json", "[]"), "is damaged"),
    "policy deep": (text("policy.json", DEEP), "nested too deeply"),
    "policy with a long number": (text("policy.json", '{"iterations": ' + LONG + "}"), "is damaged"),
    "policy of bytes": (text("policy.json", b"\xff\xfe\x00"), "is damaged"),
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
    "environment of a stranger": (hostile, "--trust"),
}


def evaluating(damage: Damage) -> Any:
    def act(place: Path) -> Ended:
        folder = place / "damaged"
        files = _sound()
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        damage(folder)
        ended = command(["evaluate", "damaged", "--episodes", "1", "--workers", "0"])(place)
        assert not (place / "ran").exists(), "code of the file was run"
        assert len(ended.said) < 1500 and (ended.code == 0 or ended.shown == "")
        return ended

    return act


ALL = {"nodes": ["*"]}


def plan(**fragment: Any) -> str:
    return json.dumps({"fragments": {"all": {**ALL, **fragment}}})


PLANS = {
    "replicas a list": (plan(replicas=[2]), "replicas"),
    "shards a list": (plan(shards=[2]), "shards"),
    "replicas null": (plan(replicas=None), "replicas"),
    "shards null": (plan(shards=None), "shards"),
    "replicas a dictionary": (plan(replicas={}), "replicas"),
    "shards a dictionary": (plan(shards={}), "shards"),
    "replicas a flag": (plan(replicas=True), "replicas"),
    "replicas 0": (plan(replicas=0), "replicas"),
    "workers below 0": (plan(workers=-1), "workers"),
    "a place of 5,000 digits": (plan(place="cpu:" + LONG), "place"),
    "a place a number": (plan(place=3), "place"),
    "deep": (DEEP, "nested too deeply"),
    "deep objects": (DEEP_OBJECT, "nested too deeply"),
    "a long number": ('{"fragments": {"all": {"nodes": ["*"], "replicas": ' + LONG + "}}}", "digits"),
    "empty": ("", "not JSON"),
    "a list": ("[]", "a plan is an object"),
    "no nodes": ('{"fragments": {"all": {}}}', 'needs "nodes"'),
    "misspelt": ('{"fragments": {"all": {"nodes": ["*"], "replica": 2, "workers": -1}}, "linkz": {}}', ""),
    "links a list": ('{"fragments": {"all": {"nodes": ["*"]}}, "links": []}', '"links" must be an object'),
    "a lag of words": ('{"fragments": {"all": {"nodes": ["*"]}}, "links": {"policy": {"lag": "soon"}}}', "lag"),
}
MISSPELT = (
    "has the unknown key 'linkz'; did you mean 'links'?",
    "fragment 'all' has the unknown key 'replica'; did you mean 'replicas'?",
)


def planned(kind: str, how: str) -> Case:
    content, words = PLANS[kind]
    args = {
        "check-plan": ["check-plan", "plan.json"],
        "train": [
            "train",
            "tests.hardening.adds:Adds",
            "tests.hardening.broken:Broken",
            "--plan",
            "plan.json",
            "--run-dir",
            "run",
        ],
    }[how]
    said = words if kind != "misspelt" else (*MISSPELT, *(["workers"] if how == "check-plan" else []))

    def act(place: Path) -> Ended:
        (place / "plan.json").write_text(content)
        ended = command(args)(place)
        assert not (place / "run").exists()
        return ended

    code = 1 if how == "check-plan" else 2
    return Case(thing=f"plan: {kind}", plan=how, act=act, code=code, words=said, learned="nothing", group="files")


CASES = [
    *(
        Case(thing=f"file: {kind}", plan="evaluate", act=evaluating(damage), code=2, words=words, learned="nothing",
             group="files")
        for kind, (damage, words) in RUNS.items()
    ),
    Case(thing="file: sound", plan="evaluate", act=evaluating(lambda _: None), learned="nothing", group="files"),
    *(planned(kind, how) for kind in PLANS for how in ("check-plan", "train")),
]  # fmt: skip
