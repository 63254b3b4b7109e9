"""Wrappers by name: one meaning for compiled environments and those of the host."""

from __future__ import annotations

import json
import re
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet import cli
from motet.envs.gymnasium import Gymnasium
from motet.envs.wrapping import asked, wrap
from motet.errors import BadEnvironment, BadOption
from motet.flow.environment import Environment
from motet.flow.host import Opening
from motet.flow.spaces import Box, Discrete

LENGTH = 7


class Compiled(Environment):
    """Shows how many steps there were, and pays as much; its episodes have seven."""

    name = "Counting"
    observation_space = Box(0.0, 100.0, (1,))
    action_space = Discrete(2)
    time_limit = None

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        count = state + 1
        return count, count[None].astype(float), count.astype(float), count >= LENGTH


class Hosted(gymnasium.Env):
    """The same for the host."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), float(self.count), self.count >= LENGTH, False, {}


def played_compiled(wrappers: dict[str, int], steps: int) -> list[Any]:
    env = wrap(Compiled(), wrappers)
    assert isinstance(env, Environment)
    state, observation = env.reset(jax.random.key(0))
    seen: list[Any] = [np.asarray(observation).tolist()]
    for length in range(1, steps + 1):
        state, observation, reward, terminated = env.step(state, jnp.zeros((), jnp.int32), jax.random.key(0))
        truncated = not terminated and env.time_limit is not None and length >= env.time_limit
        seen.append((np.asarray(observation).tolist(), float(reward), bool(terminated), truncated))
        if terminated or truncated:
            break
    return seen


def played_hosted(wrappers: dict[str, int], steps: int, workers: int = 0) -> list[Any]:
    env = wrap(motet.make(Hosted), wrappers)
    pool = env.open(Opening(0, 1, workers))  # type: ignore[union-attr]
    try:
        seen: list[Any] = [np.array(pool.reset()[0][0]).tolist()]
        for _ in range(steps):
            step = pool.step((np.zeros(1, np.int32),))
            ends = bool(step.terminated[0]), bool(step.truncated[0])
            seen.append((np.array(step.next_observation[0][0]).tolist(), float(step.reward[0]), *ends))
            if any(ends):
                break
        return seen
    finally:
        pool.close()


CASES = [
    {"time_limit": 3},
    {"time_limit": 30},
    {"action_repeat": 2},
    {"frame_stack": 3},
    {"time_limit": 5, "action_repeat": 2},
    {"time_limit": 6, "action_repeat": 4, "frame_stack": 2},
]


@pytest.mark.parametrize("wrappers", CASES, ids=str)
def test_a_wrapper_means_the_same_for_both_kinds(wrappers: dict[str, int]) -> None:
    compiled = played_compiled(wrappers, 10)
    assert played_hosted(wrappers, 10) == compiled
    assert any(compiled[-1][2:])


def test_workers_lay_them_around_too() -> None:
    assert played_hosted(CASES[-1], 10, workers=1) == played_compiled(CASES[-1], 10)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium/CartPole-v1"])
def test_a_run_remembers_its_wrappers(env: str, tmp_path: Any, capsys: Any) -> None:
    """On the command line, in the configuration, and when the run is evaluated."""
    sizes = ["--num-envs", "2", "--num-steps", "8", "--num-minibatches", "1", "--hidden", "4"]
    wrappers = ["--frame-stack", "4", "--action-repeat", "2", "--time-limit", "20", "--normalize-observation"]
    run = ["--total-timesteps", "32", "--evaluate-episodes", "2", "--run-dir", str(tmp_path / "run")]
    assert cli.main(["train", "ppo", env, *sizes, *wrappers, *run]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["environment_options"] == {"time_limit": 20, "action_repeat": 2, "frame_stack": 4}
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    # At most ten actions of two steps each, each of which pays one.
    assert float(re.search(r"return ([\d.]+)", capsys.readouterr().out)[1]) <= 20  # type: ignore[index]


def test_only_whole_numbers_will_do() -> None:
    with pytest.raises(BadOption, match="frame_stack must be a whole number of at least 1, got 0"):
        asked(frame_stack=0)


def test_environments_that_step_many_as_one_have_options_of_their_own() -> None:
    with pytest.raises(BadEnvironment, match="frame_stack cannot be laid around"):
        wrap(Gymnasium("CartPole-v1", vector=True, vectorization_mode="sync"), {"frame_stack": 2})
