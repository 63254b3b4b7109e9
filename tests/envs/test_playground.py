"""What is particular to MuJoCo Playground; what it shares with all others is in the conformance suite."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import motet
from motet.envs import make
from motet.envs.families import FAMILIES
from motet.envs.playground import Playground, ids
from motet.errors import BadEnvironment, UnknownName
from motet.flow.environment import check_environment

FAMILY = FAMILIES["playground"]
pytestmark = [
    pytest.mark.skipif(not FAMILY.installed, reason=f"{FAMILY.package} is missing: {FAMILY.install}"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_an_environment_says_what_it_is():
    env = make("playground/CartpoleBalance")
    check_environment(env)
    assert (env.name, env.time_limit) == ("playground/CartpoleBalance", 1000)
    assert np.all(np.isinf(env.observation_space.bounds)) and env.observation_space.shape == (5,)
    assert (np.unique(env.action_space.bounds[0]), np.unique(env.action_space.bounds[1])) == (-1, 1)


def test_environments_of_one_id_are_equal_so_that_compiled_functions_are_shared():
    one, other = make("playground/CartpoleBalance"), make("playground/CartpoleBalance")
    assert one == other and hash(one) == hash(other)
    assert one != make("playground/CartpoleSwingup")


def test_it_trains():
    ppo = motet.PPO(num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1, hidden=(8,))
    result = motet.train(ppo, "playground/CartpoleBalance", motet.anakin(), total_timesteps=32)
    assert result.steps == 32 and np.isfinite(result.metrics["loss"])


def test_robots_that_cannot_be_downloaded_are_told_of(monkeypatch):
    from mujoco_playground import registry

    def offline(*args, **kwargs):
        raise subprocess.CalledProcessError(128, ["git", "clone"])

    monkeypatch.setattr(registry, "load", offline)
    with pytest.raises(BadEnvironment, match=r"downloads with git .* need no download"):
        Playground("Go1JoystickFlatTerrain")


def test_an_unknown_id_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'CartpoleBalance'"):
        make("playground/CartpoleBalanc")
    assert "CheetahRun" in ids()
