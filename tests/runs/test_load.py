"""Policies by their folders, on one observation and on many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet import cli, envs
from tests.runs.untrained import untrained

CASES = {
    "ppo": (motet.PPO(hidden=(8,)), "CartPole-v1"),
    "gru": (motet.PPO(hidden=(8,), core="gru", core_size=4), "CartPole-v1"),
    "dqn": (motet.DQN(hidden=(8,)), "CartPole-v1"),
    "sac": (motet.SAC(hidden=(8,)), "Pendulum-v1"),
}
every_case = pytest.mark.parametrize("case", CASES)
OBSERVATIONS = np.random.default_rng(0)


def observations(policy: motet.Policy, *shape: int) -> np.ndarray:
    return OBSERVATIONS.normal(size=(*shape, *policy.algorithm.spec.observation_space.aval.shape)).astype(np.float32)


def actions(policy: motet.Policy, given: np.ndarray, explore: bool, **more: Any) -> np.ndarray:
    policy.reset(seed=3)
    return np.stack([policy(each, explore=explore, **more) for each in given])


@every_case
def test_a_loaded_policy_acts_as_the_saved_one(case: str, tmp_path: Path) -> None:
    policy = untrained(*CASES[case])
    policy.save(tmp_path)
    loaded, given = motet.load(tmp_path), observations(policy, 6)
    assert type(loaded.algorithm) is type(policy.algorithm)
    for explore in (False, True):
        assert (actions(loaded, given, explore) == actions(policy, given, explore)).all()


@every_case
def test_a_batch_is_decided_row_by_row(case: str) -> None:
    policy = untrained(*CASES[case])
    given = observations(policy, 5, 3)  # five steps of three environments
    together = actions(policy, given, False)
    alone = [actions(policy, given[:, row], False) for row in range(3)]
    np.testing.assert_allclose(together, np.stack(alone, 1), rtol=1e-5, atol=1e-6)
    explored = actions(policy, given, True)
    assert (explored == actions(policy, given, True)).all()
    assert len({explored[:, row].tobytes() for row in range(3)}) > 1 and (explored != together).any()


def test_an_episode_that_begins_is_forgotten_alone() -> None:
    policy, fresh = untrained(*CASES["gru"]), untrained(*CASES["gru"])
    given = observations(policy, 2, 3)
    policy(given[0])
    policy(given[1], first=np.array([True, False, False]))
    fresh(given[1])
    one, other = (np.asarray(jax.tree.leaves(each.memory)[0]) for each in (policy, fresh))
    assert (one[0] == other[0]).all() and (one[1:] != other[1:]).any(1).all()


def test_batches_that_do_not_fit_are_refused() -> None:
    policy = untrained(*CASES["gru"])
    policy(observations(policy, 3))
    with pytest.raises(ValueError, match=r"remembers 3 environments, but is asked for one environment: reset\(\)"):
        policy(observations(policy))
    with pytest.raises(ValueError, match=r"first should be of shape \(3,\)"):
        policy(observations(policy, 3), first=True)
    policy.reset()
    policy(observations(policy))
    free = untrained(*CASES["ppo"])
    assert free(observations(free, 3)).shape == (3,) and free(observations(free)).shape == ()
    for shape in ((2, 3, 4), (3, 5)):
        with pytest.raises(ValueError, match="expected one observation"):
            free(np.zeros(shape, np.float32))


def test_dictionaries_of_rows_must_agree() -> None:
    class Pair(motet.Environment):
        observation_space = motet.Dict({"a": motet.Box(0.0, 1.0, (2,)), "b": motet.Discrete(3)})
        action_space = motet.Discrete(2)

    policy = untrained(motet.PPO(hidden=(8,)), Pair())
    assert policy({"a": np.zeros((4, 2)), "b": np.zeros(4, int)}).shape == (4,)
    with pytest.raises(ValueError, match=r"expected 4 observations of Discrete\(3\) at \['b'\]"):
        policy({"a": np.zeros((4, 2)), "b": np.zeros(3, int)})


# Whose algorithm it is.


class Mine(motet.PPO):
    """Somebody's own, of a name that motet has too."""


def test_a_policy_of_somebody_s_own_algorithm_is_found_by_where_it_is(tmp_path: Path) -> None:
    policy = untrained(Mine(hidden=(8,)), "CartPole-v1")
    policy.save(tmp_path)
    told = json.loads((tmp_path / "policy.json").read_text())
    assert told["algorithm"] == f"{__name__}:Mine"
    assert type(motet.load(tmp_path).algorithm) is Mine
    assert type(motet.load(tmp_path, algorithm=motet.PPO).algorithm) is motet.PPO
    told["signature"] = "0" * 64
    (tmp_path / "policy.json").write_text(json.dumps(told))
    with pytest.raises(motet.BadOption, match="would be imported, which runs their code"):
        motet.load(tmp_path)
    assert type(motet.load(tmp_path, trust=True).algorithm) is Mine


def test_another_process_loads_it_in_three_lines(tmp_path: Path) -> None:
    policy = untrained(*CASES["ppo"])
    policy.save(tmp_path)
    code = (
        "import motet, numpy; policy = motet.load('.'); print(policy(numpy.full(4, 0.5)), policy(numpy.zeros((2, 4))))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.split() == f"{policy(np.full(4, 0.5))} {policy(np.zeros((2, 4)))}".split()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "holds no policy.json"),
        ("{", "is damaged"),
        ("[]", "names no algorithm"),
        ('{"algorithm": 3}', "names no algorithm"),
        (
            '{"algorithm": "nothing", "options": {}}',
            r"trained by 'nothing', which cannot be found.*algorithm=MyAlgorithm",
        ),
        ('{"algorithm": "ppo", "options": {}}', "holds no policy.safetensors"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "policy.json").write_text(content)
    with pytest.raises(motet.MotetError, match=words):
        motet.load(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(motet.BadOption, match=r"There is no folder .*nowhere"):
        motet.load(tmp_path / "nowhere")


# The command line.


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run with a policy at its end and another best one, without any training."""
    config = {"algorithm": "ppo", "environment": "CartPole-v1", "environment_options": {"time_limit": 9}, "options": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "best").mkdir()
    for seed, folder in enumerate((tmp_path, tmp_path / "best")):
        untrained(motet.PPO(hidden=(8,)), "CartPole-v1", seed).save(folder)
    return tmp_path


@pytest.mark.parametrize("command", ["evaluate", "record"])
def test_the_best_policy_is_asked_for_by_name(command: str, run_folder: Path, capsys: Any) -> None:
    outputs = []
    more = ["--episodes", "2"] if command == "evaluate" else ["--output", str(run_folder / "film.gif")]
    for checkpoint in ("latest", "best"):
        assert cli.main([command, str(run_folder), "--checkpoint", checkpoint, *more]) == 0
        outputs.append(capsys.readouterr().out)
    env: Any = envs.make("CartPole-v1", time_limit=9)
    for checkpoint, out in zip((run_folder, run_folder / "best"), outputs, strict=True):
        count = 2 if command == "evaluate" else 1
        score = motet.evaluate(motet.load(checkpoint), env, episodes=count)
        assert f"return {score.mean:.1f}" in out
    (run_folder / "best" / "policy.json").unlink()
    assert cli.main([command, str(run_folder), "--checkpoint", "best", *more]) == 2
    assert "holds no policy: the run kept no best one" in capsys.readouterr().err


def test_a_film_is_put_beside_the_run(run_folder: Path, capsys: Any) -> None:
    assert cli.main(["record", str(run_folder), "--seed", "4", "--max-steps", "3"]) == 0
    (film,) = (run_folder / "videos").iterdir()
    assert film.stem == "latest-4" and str(film) in capsys.readouterr().out and film.stat().st_size > 500
    assert cli.main(["record", str(run_folder / "nowhere")]) == 2
    assert "is no run's folder" in capsys.readouterr().err
