"""What is particular to EnvPool; what it shares with all others is in the conformance suite."""

from __future__ import annotations

import numpy as np
import pytest

from motet.envs import make
from motet.envs.envpool import EnvPool, EnvPoolPool, ids
from motet.errors import BadEnvironment, UnknownName
from motet.flow.host import Opening
from motet.flow.spaces import Box, Dict, Discrete


def test_spaces_are_those_of_one_environment():
    pong = make("envpool/Pong-v5")
    assert (pong.observation_space, pong.action_space) == (Box(0.0, 255.0, (4, 84, 84), "uint8"), Discrete(6))
    assert pong.name == "envpool/Pong-v5"
    cartpole = make("envpool/CartPole-v1")
    np.testing.assert_allclose(cartpole.observation_space.bounds[1], [4.8, np.inf, 0.41887903, np.inf], rtol=1e-6)


def test_what_has_no_bounds_has_none_here():
    space = make("envpool/AcrobotSwingup-v1").observation_space
    assert isinstance(space, Dict)
    for _, part in space.items:
        assert np.all(np.isinf(part.bounds))


def test_environments_of_one_id_are_equal():
    assert EnvPool("CartPole-v1") == EnvPool("CartPole-v1")
    assert hash(EnvPool("CartPole-v1")) == hash(EnvPool("CartPole-v1"))
    assert EnvPool("CartPole-v1", max_episode_steps=3) != EnvPool("CartPole-v1")


def test_actions_are_clipped_to_their_bounds():
    env = EnvPool("Pendulum-v1")
    results = []
    for torque in (2.0, 50.0):
        pool = env.open(Opening(0, 2, 0))
        pool.reset()
        results.append(pool.step((np.full((2, 1), torque, np.float32),)))
        pool.close()
    np.testing.assert_array_equal(results[0].reward, results[1].reward)
    np.testing.assert_array_equal(results[0].next_observation[0], results[1].next_observation[0])


def test_a_task_that_ends_in_the_step_of_its_limit_counts_as_truncated():
    """EnvPool raises one flag only. If this fails it has learned to raise both, and its module's text is to change."""
    lengths = []
    for limit in (500, None):
        limit = limit or lengths[0]
        pool = EnvPool("CartPole-v1", max_episode_steps=limit).open(Opening(0, 1, 0))
        pool.reset()
        length = 0
        while True:
            step = pool.step((np.ones(1, np.int32),))
            length += 1
            if step.terminated[0] or step.truncated[0]:
                break
        pool.close()
        lengths.append(length)
    assert lengths[0] == lengths[1]
    assert (step.terminated[0], step.truncated[0]) == (False, True)


class Poisoned:
    """An EnvPool of one environment with a number that is none."""

    def __init__(self, observation: float, reward: float):
        self.observation, self.reward = np.full((1, 4), observation), np.full(1, reward)

    def __len__(self):
        return 1

    def reset(self):
        return self.observation, {"env_id": np.zeros(1, np.int32)}

    def step(self, action):
        ended = np.zeros(1, bool)
        return self.observation, self.reward, ended, ended, {"env_id": np.zeros(1, np.int32)}


@pytest.mark.parametrize(("observation", "reward", "what"), [(np.nan, 1, "an observation"), (0, np.inf, "a reward")])
def test_what_is_not_finite_is_refused(observation, reward, what):
    pool = EnvPoolPool(EnvPool("CartPole-v1"), Poisoned(observation, reward))
    with pytest.raises(BadEnvironment, match=f"envpool/CartPole-v1 gave {what} that is not finite"):
        pool.step((np.zeros(1, np.int32),))


def test_a_closed_pool_says_so():
    pool = EnvPool("CartPole-v1").open(Opening(0, 1, 0))
    pool.close()
    pool.close()
    with pytest.raises(BadEnvironment, match="closed"):
        pool.reset()


def test_what_is_not_for_one_player_is_refused():
    with pytest.raises(BadEnvironment, match="several players"):
        make("envpool/Go9x9-v1")


def test_an_unknown_id_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'Pong-v5'"):
        make("envpool/Pnog-v5")
    assert "Pong-v5" in ids()


def test_a_task_takes_other_settings_and_says_which_it_does_not_know():
    env = EnvPool("Pong-v5", options=(("img_height", 52), ("img_width", 40)))
    assert env.observation_space.shape == (4, 52, 40)
    with pytest.raises(BadEnvironment, match="img_heigt"):
        EnvPool("Pong-v5", options=(("img_heigt", 52),))
