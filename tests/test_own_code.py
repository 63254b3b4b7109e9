"""Anybody's own algorithms and environments by name, on the command line and in Python; and whose code is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import algorithms, cli, named

OWN = '''
import gymnasium
import numpy as np
from dataclasses import dataclass
import motet
from motet.envs.cartpole import CartPole


class Line(gymnasium.Env):
    """Ends after `length` steps."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count >= self.length, False, {}


def make_line(length=7):
    return Line(length)


def make_pole(**options):
    return CartPole(**options)


@dataclass(frozen=True)
class Pole(CartPole):
    """motet's own kind."""


pole = CartPole()
number = 3
gymnasium.register("Line-v7", Line, kwargs={"length": 6})


@dataclass(frozen=True, kw_only=True)
class Mine(motet.A2C):
    """A2C with an option more."""

    patience: int = 2
    """How long to wait."""
'''
SHORT = ["--num-envs", "4", "--num-steps", "5", "--hidden", "4", "--total-timesteps", "40", "--evaluate-episodes", "2"]
HOST = ["--preset", "multi_learner", "--learners", "1"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import gymnasium

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(named, "_spelled", {})
    Path("mine_tried.py").write_text(OWN)
    yield
    for name in [name for name in sys.modules if name.endswith("_tried")]:
        del sys.modules[name]
    gymnasium.registry.pop("Line-v7", None)


@pytest.mark.parametrize(
    ("name", "plan", "length"),
    [
        ("mine_tried:Line", HOST, 5),
        ("mine_tried.py:Line", HOST, 5),
        ("./mine_tried.py:make_line", HOST, 7),
        ("mine_tried:Line-v7", HOST, 6),
        ("mine_tried.py:Line-v7", HOST, 6),
        ("mine_tried:make_pole", [], None),
        ("mine_tried:Pole", [], None),
        ("mine_tried:pole", [], None),
    ],
)
def test_environments_train_and_are_evaluated(name: str, plan: list[str], length: int | None, capsys: Any) -> None:
    assert cli.main(["train", "a2c", name, *SHORT, *plan, "--run-dir", "run"]) == 0, capsys.readouterr().err
    assert cli.main(["evaluate", "run", "--episodes", "2", "--workers", "0"]) == 0, capsys.readouterr().err
    if length is not None:
        assert capsys.readouterr().out.endswith(f"return {length}.0 ± 0.0 over 2 episodes\n")


def test_options_of_an_environment_reach_it_and_are_kept(capsys: Any) -> None:
    args = ["mine_tried:Line", "--env-kwargs", '{"length": 3}']
    assert cli.main(["train", "a2c", *args, *SHORT, *HOST, "--run-dir", "run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["environment_options"] == {"length": 3}
    assert cli.main(["evaluate", "run", "--episodes", "2"]) == 0  # in workers
    assert capsys.readouterr().out.endswith("return 3.0 ± 0.0 over 2 episodes\n")
    assert cli.main(["check-env", *args, "--steps", "10"]) == 0
    assert "3 to 3 steps long" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["mine_tried:Line", "--env-kwargs", '{"lenght": 3}'], "motet: mine_tried:Line cannot be made: TypeError: "),
        (["CartPole-v1", "--env-kwargs", '{"lenght": 3}'], "CartPole-v1 does not take these options"),
        (["CartPole-v1", "--env-kwargs", "[1]"], "--env-kwargs must be a JSON object"),
        (["CartPole-v1", "--env-kwargs", "{"], "--env-kwargs must be a JSON object"),
        (["mine_tried:Lime"], "Did you mean 'Line'?"),
        (["mine_tried:number"], "should be an environment, its class or what makes one, but is 3"),
        (["nowhere_tried:Line"], "There is no module 'nowhere_tried'"),
        (["nowhere.py:Line"], "There is no file"),
        (["broken_tried:Line"], "it raised ZeroDivisionError: division by zero"),
        (["needs_tried:Line"], "cannot be imported: No module named 'not_there'"),
        (["zoo_tried:Zoo"], "several agents, by PettingZoo, which motet does not serve"),
        (["pettingzoo/pistonball_v6"], "several agents, by PettingZoo, which motet does not serve"),
    ],
)
def test_what_cannot_be_made_is_named(args: list[str], words: str, capsys: Any, tmp_path: Path) -> None:
    Path("broken_tried.py").write_text("1 / 0\n")
    Path("needs_tried.py").write_text("import not_there\n")
    Path("zoo_tried.py").write_text("class Zoo:\n    __module__ = 'pettingzoo.utils.env'\n")
    assert cli.main(["train", "a2c", *args, *SHORT]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", ["mine_tried:Mine", "mine_tried.py:Mine"])
def test_an_algorithm_of_ones_own_has_its_own_options(name: str, capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    assert cli.main(["train", name, "CartPole-v1", *SHORT, "--patience", "5", "--run-dir", "run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["options"]["patience"] == 5
    assert cli.main(["graph", name, "CartPole-v1", "--patience", "5"]) == 0
    if name.startswith("mine_tried.py"):  # a file is found from everywhere
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0


def test_what_is_no_algorithm_is_refused(capsys: Any) -> None:
    assert cli.main(["train", "mine_tried:Line", "CartPole-v1"]) == 2
    assert "should be a subclass of motet.Algorithm" in capsys.readouterr().err
    assert algorithms.name_of(motet.PPO()) == "ppo"


def test_a_strangers_run_is_not_imported_unasked(capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    assert cli.main(["train", "a2c", "mine_tried:Line", *SHORT, *HOST, "--run-dir", "run"]) == 0
    evaluate = ["evaluate", "run", "--episodes", "2", "--workers", "0"]
    assert cli.main(evaluate) == 0
    told = json.loads(Path("run/config.json").read_text())
    ran = tmp_path / "ran"
    Path("evil_tried.py").write_text(f"open({str(ran)!r}, 'w').close()\nfrom mine_tried import *\n")
    Path("run/config.json").write_text(json.dumps({**told, "environment": "evil_tried:Line"}))
    capsys.readouterr()
    assert cli.main(evaluate) == 2
    assert "evil_tried would be imported, which runs their code" in capsys.readouterr().err
    assert not ran.exists()
    assert cli.main([*evaluate, "--trust"]) == 0
    assert ran.exists()


def test_another_user_is_asked(capsys: Any, monkeypatch: Any, tmp_path: Path) -> None:
    assert cli.main(["train", "a2c", "mine_tried:Line", *SHORT, *HOST, "--run-dir", "run"]) == 0
    assert (tmp_path / "config/motet/key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert cli.main(["evaluate", "run"]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_python_takes_the_same() -> None:
    tiny = motet.A2C(num_envs=4, num_steps=5, hidden=(4,))
    result = motet.train(tiny, "mine_tried:make_line", motet.multi_learner(1), total_timesteps=40)
    from mine_tried import Line  # type: ignore[import-not-found]

    assert motet.evaluate(result.policy, Line, episodes=2, workers=0).lengths.tolist() == [5, 5]
    assert motet.evaluate(result.policy, "mine_tried.py:Line", episodes=2, workers=0).lengths.tolist() == [5, 5]


SCRIPT = """
import gymnasium, motet
import mine_tried

def make():
    return gymnasium.make("Line-v7")

gymnasium.register("Here-v0", lambda: mine_tried.Line(4))

def make_here():
    return gymnasium.make("Here-v0")

if __name__ == "__main__":
    tiny = motet.A2C(num_envs=2, num_steps=5, hidden=(4,))
    for each in (make, make_here):
        print(motet.train(tiny, each, motet.batched(workers=1), total_timesteps=40).metrics["length"])
"""


def test_workers_know_what_a_script_has_registered() -> None:
    Path("script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("6.0\n4.0\n", 0), done.stderr
