"""A space that answers sooner gives the same answers, and stays the object that it was."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from motet.envs import gymnasium as adapter
from motet.envs.quick_spaces import Quick, quicken
from motet.flow.host import Opening


class Env(gymnasium.Env):
    observation_space = Box(-1.0, 1.0, (2,))

    def __init__(self, action_space):
        self.action_space = action_space


ASKED = [-3, -2, -1, 0, 1, 2, 3, 10**30, True, False, 1.0, "1", None, (), [1], np.nan]
ASKED += [np.int64(1), np.int32(-1), np.uint8(2), np.float32(1), np.asarray(1), np.asarray([1]), np.bool_(True)]


def answer(space, asked):
    try:
        return space.contains(asked)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize(
    "make", [lambda: Discrete(2), lambda: Discrete(3, start=-1), lambda: Discrete(2, dtype=np.int8)]
)
@pytest.mark.parametrize("asked", ASKED, ids=repr)
def test_it_gives_the_same_answers(make, asked):
    usual, env = make(), Env(make())
    quicken(env)
    assert type(env.action_space) is Quick
    assert answer(env.action_space, asked) == answer(usual, asked)


def test_it_stays_the_same_object_with_the_same_draws():
    usual, space = Discrete(5, seed=3), Discrete(5, seed=3)
    env = Env(space)
    quicken(env)
    assert env.action_space is space
    assert space == usual and usual == space
    assert repr(space) == repr(usual)
    assert [space.sample() for _ in range(20)] == [usual.sample() for _ in range(20)]
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert other == usual and other.contains(4) and not other.contains(5)


def test_spaces_of_other_kinds_are_left_alone():
    class Own(Discrete):
        def contains(self, x):
            return x == 7

    for space in (Own(2), Box(-1.0, 1.0, (2,))):
        env, kind = Env(space), type(space)
        quicken(env)
        assert type(env.action_space) is kind


def test_pools_make_spaces_quick_below_all_wrappers():
    made = []

    def make():
        made.append(gymnasium.make("CartPole-v1"))
        return made[-1]

    pool = adapter.Gymnasium(make).open(Opening(0, 2, 1))
    pool.reset()
    pool.step((np.asarray([0, 1], np.int32),))
    pool.close()
    assert [type(env.unwrapped.action_space) for env in made[-2:]] == [Quick, Quick]
