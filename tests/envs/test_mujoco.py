"""MuJoCo's environments of Gymnasium and EnvPool; what they share with all others is in the conformance suite."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from motet import cli
from motet.envs import make
from motet.envs.gymnasium import Gymnasium
from motet.errors import BadEnvironment

SHORT = ["--num-envs", "2", "--num-steps", "8", "--num-minibatches", "1", "--update-epochs", "1", "--hidden", "8"]
LIMITS = ["--total-timesteps", "32", "--evaluate-episodes", "1"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo writes what it warns of into a file there."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("env", ["HalfCheetah-v5", "envpool/HalfCheetah-v4"])
def test_the_cheetah_trains_out_of_the_box(env: str, tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["train", "ppo", env, *SHORT, *LIMITS, "--run-dir", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "over 1 episodes" in shown and "32" in shown


def test_gymnasium_and_envpool_have_the_same_cheetah() -> None:
    ours, other = make("HalfCheetah-v5"), make("envpool/HalfCheetah-v4")
    assert ours.observation_space.shape == other.observation_space.shape == (17,)
    assert ours.action_space.shape == other.action_space.shape == (6,)


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5"])
def test_mujoco_solves_what_it_factorises_sparse_or_dense(env_id: str) -> None:
    """A MuJoCo that does not would train on other robots; pyproject.toml says which versions there may be."""
    import mujoco

    env: Any = gymnasium.make(env_id).unwrapped
    env.reset(seed=0)
    model, data = env.model, env.data
    right, solved, product = np.linspace(-1, 1, model.nv), np.zeros((1, model.nv)), np.zeros(model.nv)
    model.opt.iterations, model.opt.tolerance = 200, 1e-13
    for _ in range(5):
        env.step(env.action_space.high)
        accelerations = []
        for model.opt.jacobian in (mujoco.mjtJacobian.mjJAC_DENSE, mujoco.mjtJacobian.mjJAC_SPARSE):
            mujoco.mj_forward(model, data)
            mujoco.mj_solveM(model, data, solved, right[None])
            mujoco.mj_mulM(model, data, product, solved[0])
            np.testing.assert_allclose(product, right, atol=1e-10)
            accelerations.append(data.qacc.copy())
        np.testing.assert_allclose(*accelerations, rtol=1e-6, atol=1e-6)
    env.close()


@pytest.mark.parametrize(
    ("env_id", "package", "extra"), [("HalfCheetah-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d")]
)
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    env_id: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith(f"gymnasium.envs.{extra}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    with pytest.raises(BadEnvironment, match=rf"'{env_id}' cannot be made: .*pip install 'motet\[{extra}\]'"):
        make(env_id)


def test_other_errors_are_told_as_they_are() -> None:
    with pytest.raises(BadEnvironment, match=r"frame_skip|nonsense") as caught:
        Gymnasium("HalfCheetah-v5", nonsense=1)
    assert "pip install" not in str(caught.value)
