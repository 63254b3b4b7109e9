"""A run that is repeated from its folder, or from a file of the same form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import cli
from motet.cli.arguments import parse_task
from motet.cli.options import RunOptions, Task
from motet.cli.plan_options import chosen_plan, plan_options
from motet.cli.repeated import Repeated

TINY = ("--num-envs", "4", "--num-steps", "8", "--update-epochs", "1", "--num-minibatches", "2", "--hidden", "8")
QUIET = ("--evaluate-episodes", "0")
SCHEDULE = """
open({ran!r}, "w").close()
def schedule(count):
    return 0.001 / (1 + count)
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def written(**config: Any) -> str:
    Path("mine.json").write_text(json.dumps(config))
    return "mine.json"


def policy(run: str) -> bytes:
    return (Path("runs") / run / "policy.safetensors").read_bytes()


def options(*args: str) -> Any:
    """What `motet train` would be told."""
    parts = {"task": Task, "run": RunOptions, "plan": plan_options()}
    return parse_task("train", "", list(args), Repeated.asked_for(args), **parts)


def test_a_run_repeats_from_its_folder_by_one_command(capsys: Any) -> None:
    asked = ("--time-limit", "60", "--stop-when", "return >= 1000", "--seed", "3")
    plan = ("--preset", "coarse", "--actors", "2", "--lag", "1")
    first = ["ppo", "CartPole-v1", *TINY, *asked, *plan, *QUIET, "--total-timesteps", "330", "--run-dir", "runs/first"]
    assert cli.main(["train", *first]) == 0, capsys.readouterr().err
    assert cli.main(["train", "--config", "runs/first", "--run-dir", "runs/again", *QUIET]) == 0
    assert policy("again") == policy("first")
    one, two = (json.loads(Path(f"runs/{run}/config.json").read_text()) for run in ("first", "again"))
    assert one == two
    told = motet.configuration("first")
    result = motet.train(**told, run_dir="runs/python", progress=False)
    assert policy("python") == policy("first") and result.steps == 320


def test_a_file_says_as_much_as_it_likes() -> None:
    file = written(algorithm="dqn", environment="Pendulum-v1", options={"hidden": [3, 3]}, run={"keep": 7})
    read = options("--config", file)
    assert read.algorithm == motet.DQN(hidden=(3, 3)) and read.task.env == "Pendulum-v1"
    assert read.run.keep == 7 and read.run.seed == 0 and read.run.total_timesteps == 500_000
    assert motet.configuration(file) == {
        "algorithm": motet.DQN(hidden=(3, 3)),
        "env": motet.make("Pendulum-v1"),
        "keep": 7,
    }


def test_the_command_line_wins() -> None:
    file = written(
        algorithm="ppo",
        environment="CartPole-v1",
        environment_options={"time_limit": 60, "gravity": 9.0},
        options={"num_envs": 4, "hidden": [8], "normalize_observation": True},
        seed=3,
        steps=320,
        plan=json.loads(motet.coarse(2).to_json()),
        run={"checkpoint_steps": 100, "eval_steps": 160, "timeout": 5.0},
    )
    same = options("--config", file)
    assert same.algorithm == motet.PPO(num_envs=4, hidden=(8,), normalize_observation=True)
    assert same.task.options() == {"gravity": 9.0} and same.task.time_limit == 60
    assert (same.run.seed, same.run.total_timesteps, same.run.timeout, same.run.eval_steps) == (3, 320, 5.0, 160)
    other = options(
        "ppo", "CartPole-v1", f"--config={file}", "--seed", "4", "--num-envs", "8", "--checkpoint-seconds", "9",
        "--no-normalize-observation", "--preset", "anakin",
    )  # fmt: skip
    assert other.algorithm == motet.PPO(num_envs=8, hidden=(8,), normalize_observation=False)
    assert other.task == same.task and other.run.seed == 4 and chosen_plan(other.plan) == motet.anakin()
    assert (other.run.checkpoint_seconds, other.run.checkpoint_steps) == (9.0, None)
    # What an environment was told is not for another one.
    assert options("ppo", "Acrobot-v1", "--config", file).task == Task(env="Acrobot-v1")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", "mine.json is damaged"),
        ("[]", "should hold an object"),
        ({"algorithm": "ppo"}, "names no algorithm and environment"),
        ({"format": 99}, "has format 99"),
        ({"algorithm": "poo"}, "There is no algorithm 'poo'. Did you mean 'ppo'?"),
        ({"environment": "CartPoll-v1"}, "Did you mean 'CartPole-v1'?"),
        ({"total_steps": 5}, "There is no key of a configuration (in mine.json) 'total_steps'"),
        ({"options": {"num_env": 5}}, "PPO has no num_env"),
        ({"options": {"num_envs": "many"}}, "num_envs"),
        ({"options": 5}, "options should be an object, but is 5"),
        ({"seed": "three"}, "seed should be a whole number, but is 'three'"),
        ({"plan": {"fragments": 3}}, "fragments"),
        ({"run": {"evalsteps": 3}}, "'evalsteps'. Did you mean 'eval_steps'?"),
        ({"run": {"keep": True}}, "keep of run should be of type int, but is True"),
        ({"run": [3]}, "run should be an object"),
        ({"run": {"keep": -1}}, "keep must be at least 0"),
    ],
)
def test_a_configuration_that_is_none_says_why(config: Any, words: str, capsys: Any) -> None:
    whole = {"algorithm": "ppo", "environment": "CartPole-v1"}
    if isinstance(config, dict):
        config = json.dumps(config if config == {"algorithm": "ppo"} else {**whole, **config})
    Path("mine.json").write_text(config)
    assert cli.main(["train", "--config", "mine.json", *QUIET]) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--config", "nowhere"], "There is no run's folder nowhere"),
        (["--config", "."], "it holds no config.json"),
        (["dqn", "CartPole-v1", "--config", "mine.json"], "is a configuration of ppo, and not of dqn"),
        (["--config"], "--config needs a run or a file"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(args: list[str], words: str, capsys: Any) -> None:
    written(algorithm="ppo", environment="CartPole-v1")
    assert cli.main(["train", *args]) == 2
    assert words in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_code_that_only_learning_needs_is_found_again_and_a_strangers_only_if_trusted(capsys: Any) -> None:
    """A schedule of somebody's own: a run that is repeated or goes on has it, and not the default in its place."""
    Path("mine.py").write_text(SCHEDULE.format(ran="ran"))
    first = ["a2c", "CartPole-v1", "--num-envs", "2", "--num-steps", "4", "--hidden", "8", *QUIET]
    rate = ("--learning-rate", "mine.py:schedule")
    assert cli.main(["train", *first, *rate, "--total-timesteps", "80", "--run-dir", "runs/first"]) == 0
    assert cli.main(["train", "--config", "first", "--run-dir", "runs/again", *QUIET]) == 0, capsys.readouterr().err
    assert policy("again") == policy("first")
    assert cli.main(["resume", "first", "--total-timesteps", "160", *QUIET]) == 0, capsys.readouterr().err
    config = json.loads(Path("runs/first/config.json").read_text())
    assert config["options"]["learning_rate"] == {"text": str(Path("mine.py").absolute()) + ":schedule"}
    Path("ran").unlink()
    Path("config/motet/key").unlink()  # now somebody else wrote it
    for command in (["train", "--config", "runs/first"], ["resume", "runs/first", "--total-timesteps", "240"]):
        assert cli.main([*command, *QUIET]) == 2
        assert "would be imported, which runs their code" in capsys.readouterr().err
    assert not Path("ran").exists()
    assert cli.main(["evaluate", "runs/first", "--episodes", "1"]) == 0  # which needs no schedule
    config["options"]["learning_rate"] = {"text": "mine:<lambda>"}
    Path("runs/first/config.json").write_text(json.dumps(config))
    with pytest.raises(motet.BadOption, match="learning_rate was mine:<lambda>, which has no name to be found by"):
        motet.resume("runs/first", total_timesteps=240)
