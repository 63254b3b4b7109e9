"""Exported policies: they act as the trained one, without motet, and say what they are."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

import motet
from motet import cli
from tests.runs.test_load import CASES, every_case, observations
from tests.runs.untrained import untrained

STEPS, ROWS = 4, 3


def played(policy: motet.Policy, given: np.ndarray, explore: bool) -> np.ndarray:
    policy.reset(seed=7)
    return np.stack([policy(each, explore=explore) for each in given])


def read(folder: Path, mode: str) -> Any:
    return export.deserialize(bytearray((folder / f"{mode}.stablehlo").read_bytes()))


@every_case
def test_a_stablehlo_program_acts_as_the_policy(case: str, tmp_path: Path) -> None:
    policy = untrained(*CASES[case])
    motet.export(policy, tmp_path, "stablehlo")
    told = json.loads((tmp_path / "program.json").read_text())
    given = observations(policy, STEPS, ROWS)
    for mode, explore in (("greedy", False), ("explore", True)):
        program, wanted = read(tmp_path, mode), played(policy, given, explore)
        names = [each["name"] for each in told["programs"][mode]["inputs"]]
        assert ("key" in names) is explore and ("memory.0" in names) is (case == "gru")
        memory = [np.repeat(np.asarray(each, np.float32)[None], ROWS, 0) for each in told["first_memory"]]
        for step in range(STEPS):
            key = jax.random.fold_in(jax.random.key(7), step + 1)
            keys = jax.vmap(partial(jax.random.fold_in, key))(np.arange(ROWS))
            inputs: dict[str, Any] = {"observation": given[step]}
            inputs |= {"key": jax.random.key_data(keys)} if explore else {}
            inputs |= {"memory": memory} if memory else {}
            out = program.call(inputs)
            memory = out.get("memory", [])
            np.testing.assert_allclose(out["action"], wanted[step], rtol=1e-6, atol=1e-6)


def test_an_onnx_program_acts_as_the_policy(tmp_path: Path) -> None:
    pytest.importorskip("jax2onnx", reason="jax2onnx is not installed: pip install 'motet[onnx]'")
    onnxruntime = pytest.importorskip("onnxruntime")
    for case in CASES:
        policy, folder = untrained(*CASES[case]), tmp_path / case
        motet.export(policy, folder, "onnx")
        session = onnxruntime.InferenceSession(folder / "greedy.onnx")
        told = json.loads((folder / "program.json").read_text())
        given = observations(policy, STEPS, ROWS)
        memory = [np.repeat(np.asarray(each, np.float32)[None], ROWS, 0) for each in told["first_memory"]]
        for step, wanted in enumerate(played(policy, given, False)):
            inputs = {"observation": given[step]} | {f"memory.{index}": each for index, each in enumerate(memory)}
            action, *memory = session.run(None, inputs)
            np.testing.assert_allclose(action, wanted, rtol=1e-5, atol=1e-6)


def test_onnx_without_its_library_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(motet.BadOption, match=r"pip install 'motet\[onnx\]'.*--to stablehlo"):
        motet.export(untrained(*CASES["ppo"]), tmp_path, "onnx")


def test_an_exported_folder_is_loaded_again(tmp_path: Path) -> None:
    policy = untrained(*CASES["sac"])
    files = motet.export(policy, tmp_path / "policy")
    assert [file.name for file in files] == ["policy.safetensors", "policy.json", "README.md"]
    given = observations(policy, STEPS, ROWS)
    assert (played(motet.load(tmp_path / "policy"), given, True) == played(policy, given, True)).all()
    assert 'motet.load("policy")' in files[-1].read_text()


def test_bad_options_are_named(tmp_path: Path) -> None:
    policy = untrained(*CASES["ppo"])
    (tmp_path / "file").write_text("")
    with pytest.raises(motet.UnknownName, match=r"There is no format 'onx'. Did you mean 'onnx'"):
        motet.export(policy, tmp_path, "onx")
    with pytest.raises(motet.BadOption, match="cannot be written"):
        motet.export(policy, tmp_path / "file" / "policy")
    with pytest.raises(motet.BadOption, match="policy must be"):
        motet.export(tmp_path, tmp_path)  # type: ignore[arg-type]


def test_the_card_says_what_was_trained_and_how_good_it_is(tmp_path: Path, capsys: Any) -> None:
    policy = untrained(motet.PPO(hidden=(8,)), "CartPole-v1")
    config = {
        "algorithm": "ppo",
        "environment": "CartPole-v1",
        "environment_options": {"time_limit": 9},
        "options": {"hidden": [8], "note": "a | b\n<script>"},
        "steps": 12_345,
        "seed": 3,
        "versions": {"jax": "0"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "plan.json").write_text(motet.coarse(actors=2).to_json())
    policy.save(tmp_path)
    assert cli.main(["export", str(tmp_path), "--evaluate-episodes", "4"]) == 0
    out = capsys.readouterr().out.split()
    card = (tmp_path / "export" / "safetensors" / "README.md").read_text()
    assert str(tmp_path / "export" / "safetensors" / "README.md") in out
    score = motet.evaluate(policy, motet.make("CartPole-v1", time_limit=9), episodes=4)
    for words in ("# PPO on CartPole-v1", "12,345", "coarse", str(score), "time_limit", "jax 0"):
        assert words in card
    assert "<script>" not in card and "a \\| b" in card
    assert cli.main(["export", str(tmp_path), "--evaluate-episodes", "-1"]) == 2
