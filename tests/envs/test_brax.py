"""What is particular to Brax; what it shares with all others is in the conformance suite."""

from __future__ import annotations

import numpy as np
import pytest

from motet.envs import make
from motet.envs.brax import Brax, ids
from motet.envs.families import FAMILIES
from motet.errors import UnknownName
from motet.flow.environment import check_environment

pytestmark = [
    pytest.mark.skipif(not FAMILIES["brax"].installed, reason=f"brax is missing: {FAMILIES['brax'].install}"),
    pytest.mark.filterwarnings("ignore:Brax System"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_an_environment_says_what_it_is():
    env = make("brax/fast")
    check_environment(env)
    assert (env.name, env.time_limit) == ("brax/fast", 1000)
    assert np.all(np.isinf(env.observation_space.bounds))
    assert (np.unique(env.action_space.bounds[0]), np.unique(env.action_space.bounds[1])) == (-1, 1)


def test_environments_of_one_id_are_equal_so_that_compiled_functions_are_shared():
    assert make("brax/fast") == make("brax/fast") and hash(make("brax/fast")) == hash(make("brax/fast"))
    assert Brax("fast", "spring") != Brax("fast")
    assert Brax("fast", "spring").name == "brax/fast (spring)"


def test_an_unknown_id_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'halfcheetah'"):
        make("brax/halfcheeta")
    assert "ant" in ids()
