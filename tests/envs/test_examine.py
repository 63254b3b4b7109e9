"""What `examine` finds in environments that break their contract, and that it finds nothing in those that keep it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from motet import cli
from motet.envs import make
from motet.envs.cartpole import CartPole
from motet.envs.examine import examine, random_actions
from motet.envs.wrappers import LimitDuration
from motet.flow.host import HostEnvironment, HostStep, Opening
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

STEPS = 40
ABOVE = itertools.count()
"""Grows with every use: what no seed resets."""


@dataclass(frozen=True)
class Faulty(HostEnvironment):
    """Counts to five; `fault` says how it goes wrong."""

    fault: str = ""
    name: str = "faulty"

    observation_space = Box(0.0, 10.0, (2,))
    action_space = Discrete(2)

    def open(self, opening: Opening):
        return FaultyPool(self.fault, opening)


class FaultyPool:
    def __init__(self, fault: str, opening: Opening):
        self.fault = fault
        self.count = opening.count
        self.seeds = np.array([opening.seed_of(index) % 4 for index in range(opening.count)], np.float32)
        self.closed = 0

    def reset(self):
        if self.fault == "raises":
            raise ZeroDivisionError("no wheels")
        self.time = np.zeros(self.count, np.float32)
        return self.observe()

    def observe(self):
        offset = {"outside": 8, "random": next(ABOVE) / 1e3, "grouped": self.count}.get(self.fault, 0)
        observation = np.stack([np.minimum(self.time, 9) + offset, self.seeds], 1).astype(np.float32)
        if self.fault == "nan":
            observation[-1, 1] = np.nan
        if self.fault == "double":
            observation = observation.astype(np.float64)
        if self.fault == "flat":
            observation = observation[:, 0]
        return (observation, observation) if self.fault == "parts" else (observation,)

    def step(self, action):
        assert len(action[0]) == self.count
        self.time += 1
        last = self.observe()
        ended = self.time >= (1e9 if self.fault == "endless" else 5)
        self.time[ended] = 0
        first = self.observe()
        if self.fault == "lost":
            last = first
        if self.fault == "behind":
            first = (first[0] + 0.5,)
        reward = np.full(self.count, np.inf if self.fault == "reward" else 1, np.float32)
        flags = ended.astype(np.float32) if self.fault == "flags" else ended
        other = ended if self.fault == "both" else np.zeros(self.count, bool)
        return HostStep(first, last, reward, flags, other, ~other, np.zeros(self.count, np.int32))

    def close(self):
        self.closed += 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan", "At reset: observation must be finite; it holds nan."),
        ("double", "reset must return observation as float32[4, 2], as its space says; got float64[4, 2]."),
        ("flat", "got float32[4]."),
        ("parts", "reset must return observation in 1 parts; got 2."),
        ("random", "reset gave another observation the second time, with the same seed and actions."),
        ("grouped", "reset gave another observation the second time, in a pool of two instead of four."),
        ("behind", "observation must equal next_observation where the episode goes on"),
        ("reward", "At step 1: reward must be finite; got [inf"),
        ("flags", "step must return terminated as 4 bools; got float32[4]."),
        ("raises", "It raised ZeroDivisionError: no wheels"),
    ],
)
def test_a_broken_contract_is_found(fault, words):
    seen = examine(Faulty(fault), steps=STEPS)
    assert any(words in finding for finding in seen.findings), seen.findings


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("endless", "No episode ended within 40 steps"),
        ("lost", "Is it really the last one?"),
        ("both", "both set 32 times"),
        ("outside", "declares; the worst: the observation at [0] was 13, above 10"),
    ],
)
def test_what_may_be_as_it_should_is_a_note(fault, words):
    seen = examine(Faulty(fault), steps=STEPS)
    assert not seen.findings
    assert any(words in note for note in seen.notes), seen.notes


def test_nothing_is_found_in_a_host_environment_that_keeps_its_contract():
    seen = examine(Faulty(), steps=STEPS)
    assert (seen.findings, seen.notes) == ([], [])
    assert (seen.steps, seen.terminated, seen.truncated, set(seen.lengths)) == (STEPS, 32, 0, {5})


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Catch-v0", "gymnasium/CartPole-v1"])
def test_nothing_is_found_in_good_environments(env_id):
    seen = examine(make(env_id), steps=210)
    assert seen.findings == []
    assert seen.lengths


@dataclass(frozen=True)
class Climbing(CartPole):
    """Leaves its space."""

    def step(self, state, action, key):
        state, observation, reward, _ = super().step(state, action, key)
        return state, observation + 0.1, reward, jnp.zeros((), bool)


@dataclass(frozen=True)
class Poisoned(CartPole):
    def step(self, state, action, key):
        state, observation, reward, terminated = super().step(state, action, key)
        return state, observation, reward / jnp.where(terminated, 0.0, 1.0), terminated


@dataclass(frozen=True)
class Wide(CartPole):
    def reset(self, key):
        state, observation = super().reset(key)
        return state, jnp.tile(observation, 2)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Poisoned(), "reward must be finite"),
        (Wide(), "reset must return observation as float32[4], as its observation_space says; got float32[8]."),
    ],
)
def test_a_broken_contract_is_found_in_jax_environments(env, words):
    seen = examine(env, steps=300)
    assert any(words in finding for finding in seen.findings), seen.findings


def test_both_ways_to_end_are_counted_apart():
    seen = examine(LimitDuration(CartPole(), 12), steps=200)
    assert seen.terminated > 0 and seen.truncated > 0
    assert seen.terminated + seen.truncated == len(seen.lengths)
    assert max(seen.lengths) == 12


def test_every_pool_is_closed():
    pools = []

    class Watched(Faulty):
        def open(self, opening):
            pools.append(super().open(opening))
            return pools[-1]

    for fault in ("", "nan", "raises"):
        examine(Watched(fault), steps=3)
    assert [pool.closed for pool in pools] == [1] * 9


def test_random_actions_are_of_every_space():
    space = Dict(
        {
            "a": Discrete(3),
            "b": Tuple((MultiDiscrete((2, 5)), MultiBinary((2, 2)))),
            "c": Box((-1.0, -np.inf, 2.0, -np.inf), (1.0, np.inf, np.inf, 3.0), (4,)),
            "d": Box(3, 7, (2,), "int32"),
        }
    )
    a, b, c, d, e = random_actions(space, np.random.default_rng(0), 500)
    np.testing.assert_array_equal(np.unique(a), [0, 1, 2])
    np.testing.assert_array_equal(b.max(0), [1, 4])
    np.testing.assert_array_equal(np.unique(c), [0, 1])
    assert np.all(d.min(0) >= [-1, -1, 2, 1]) and np.all(d.max(0) <= [1, 1, 4, 3])
    np.testing.assert_array_equal(np.unique(e), [3, 4, 5, 6, 7])
    assert [leaf.dtype.name for leaf in (a, b, c, e)] == ["int32", "int32", "int8", "int32"]


def test_the_command_prints_what_it_saw_and_ends_with_the_verdict(capsys, monkeypatch):
    assert cli.main(["check-env", "CartPole-v1", "--steps", "200"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "environment   CartPole-v1"
    assert out[3] == "played        4 environments, 200 random steps each"
    assert out[4].startswith("episodes      ") and out[-1] == "ok"
    monkeypatch.setattr("motet.envs.registry.make", lambda env_id, **options: Faulty("nan"))
    assert cli.main(["check-env", "faulty"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "At reset: observation must be finite; it holds nan."


def test_the_command_refuses_no_steps_and_unknown_environments(capsys):
    assert cli.main(["check-env", "CartPole-v1", "--steps", "0"]) == 2
    assert cli.main(["check-env", "CartPol-v1"]) == 2
    assert "Did you mean 'CartPole-v1'?" in capsys.readouterr().err
