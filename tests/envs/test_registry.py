"""Finding environments by name, and what holds for every one of them."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.envs import describe, families, make, registry
from motet.envs.families import FAMILIES
from motet.envs.gymnasium import Gymnasium
from motet.envs.registry import ALIASES, ENVIRONMENTS
from motet.errors import BadEnvironment, UnknownName
from motet.flow.spaces import Box

every_environment = pytest.mark.parametrize("env_id", ENVIRONMENTS)
KEY = jax.random.key(0)


def test_the_registry_holds_these_names():
    assert set(ENVIRONMENTS) == {
        "CartPole-v1",
        "Pendulum-v1",
        "Acrobot-v1",
        "MountainCar-v0",
        "MountainCarContinuous-v0",
        "Catch-v0",
    }


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_makes_the_same_environment(alias):
    assert make(alias) == make(ALIASES[alias])


@pytest.mark.parametrize(("wrong", "meant"), [("CartPol-v1", "CartPole-v1"), ("pendulum-1", "Pendulum-v1")])
def test_an_unknown_name_is_answered_with_the_nearest(wrong, meant):
    with pytest.raises(UnknownName, match=meant) as caught:
        make(wrong)
    assert isinstance(caught.value, ValueError) and wrong in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("LunarLandr-v3", "LunarLander-v3"),
        ("gymnax/CartPol-v1", "CartPole-v1"),
        ("envpool/Pnog-v5", "Pong-v5"),
        ("Pong-msic", "gymnax/Pong-misc"),
        ("gymnax/", "There is no gymnax environment ''"),
    ],
)
def test_near_names_are_looked_for_in_other_libraries_too(wrong, meant):
    with pytest.raises(UnknownName, match=meant):
        make(wrong)


def test_own_environments_come_before_others_of_the_same_name():
    assert make("CartPole-v1").name == "CartPole-v1"
    assert make("gymnax/CartPole-v1").name == "gymnax/CartPole-v1"
    assert make("envpool/CartPole-v1").name == "envpool/CartPole-v1"


@pytest.mark.parametrize("env_id", ["gymnasium/CartPole-v1", "FrozenLake-v1", "gymnasium.envs.toy_text:Taxi-v4"])
def test_what_gymnasium_knows_is_made_by_its_adapter(env_id):
    env = make(env_id)
    assert isinstance(env, Gymnasium)
    assert env.name == env_id, "the name must lead back to the same environment"


def test_a_function_makes_a_gymnasium_environment():
    assert isinstance(make(lambda: gymnasium.make("CartPole-v1")), Gymnasium)


def test_a_name_that_is_like_no_other_is_answered_with_motets_own_and_the_prefixes():
    with pytest.raises(UnknownName, match=r"Known: .*CartPole-v1.*brax/ID") as caught:
        make("§§§§")
    assert "Did you mean" not in str(caught.value)


def test_a_broken_library_does_not_hide_that_a_name_is_unknown(monkeypatch):
    def broken(name, package=None):
        raise ImportError("no module six")

    monkeypatch.setattr(families, "import_module", broken)
    monkeypatch.setattr(registry, "load", lambda place: families.library("gymnax"))
    with pytest.raises(UnknownName, match="Did you mean 'CartPole-v1'"):
        make("CartPol-v1")


@pytest.mark.parametrize("prefix", FAMILIES)
def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(prefix, monkeypatch):
    def missing(name, package=None):
        raise ImportError(name)

    monkeypatch.setattr(families, "import_module", missing)
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    with pytest.raises(BadEnvironment, match=rf"pip install 'motet\[{prefix}\]'"):
        make(f"{prefix}/Pong-v5")
    assert not FAMILIES[prefix].installed


def test_a_library_that_cannot_be_imported_is_told_with_the_reason(monkeypatch):
    def broken(name, package=None):
        raise ImportError("no module six")

    monkeypatch.setattr(families, "import_module", broken)
    with pytest.raises(BadEnvironment, match="installed but cannot be imported: no module six"):
        families.library("gymnasium")


def test_describe_agrees_with_make_on_every_environment():
    assert [line.id for line in describe()] == list(ENVIRONMENTS)
    for env_id, summary, observation_space, action_space, time_limit in describe():
        env = make(env_id)
        assert (observation_space, action_space, time_limit) == (
            env.observation_space,
            env.action_space,
            env.time_limit,
        )
        assert summary.endswith(".") and "\n" not in summary


def test_importing_the_registry_imports_no_environment():
    code = "import sys, motet.envs; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = {place.partition(":")[0] for place in ENVIRONMENTS.values()}
    assert not (modules | {family.package for family in FAMILIES.values()}) & set(output.split())


@every_environment
def test_two_of_a_kind_are_equal_so_that_compiled_functions_are_shared(env_id):
    assert make(env_id) == make(env_id) and hash(make(env_id)) == hash(make(env_id))


@every_environment
def test_a_step_keeps_the_types_of_a_reset(env_id):
    env = make(env_id)
    before = jax.eval_shape(env.reset, KEY)
    *after, reward, terminated = jax.eval_shape(env.step, before[0], env.action_space.aval, KEY)
    assert jax.tree.map(kind, before) == jax.tree.map(kind, tuple(after))
    assert kind(before[1]) == kind(env.observation_space.aval)
    assert kind(reward) == ((), jnp.result_type(float), False)
    assert kind(terminated) == ((), np.dtype(bool), False)


def kind(aval: jax.ShapeDtypeStruct) -> tuple:
    return aval.shape, aval.dtype, aval.weak_type


@every_environment
def test_observations_stay_within_their_space(env_id):
    env = make(env_id)
    assert isinstance(env.observation_space, Box)

    def one(state, key):
        key_act, key_step = jax.random.split(key)
        state, observation, _, terminated = env.step(state, env.action_space.sample(key_act), key_step)
        return state, (observation, terminated)

    state, first = env.reset(KEY)
    _, (observations, terminated) = jax.jit(lambda state, keys: jax.lax.scan(one, state, keys))(
        state, jax.random.split(KEY, 200)
    )
    until_the_end = np.cumsum(terminated) - terminated == 0
    low, high = env.observation_space.bounds
    for observation in (first, *np.asarray(observations)[until_the_end]):
        assert np.all(observation >= low) and np.all(observation <= high)


def test_twins_are_what_gymnasium_has_too() -> None:
    assert {env_id for env_id in registry.ENVIRONMENTS if env_id in gymnasium.registry} == registry.TWINS
