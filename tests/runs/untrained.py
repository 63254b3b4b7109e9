"""Policies as they are before any training: enough wherever it does not matter how good they are."""

from __future__ import annotations

from typing import Any

import jax

import motet
from motet import envs
from motet.flow.algorithm import Spec


def untrained(algorithm: motet.Algorithm, env: Any, seed: int = 0) -> motet.Policy:
    made = envs.as_environment(env)
    bound = algorithm.bind(Spec(made.observation_space, made.action_space, 10))
    return motet.Policy(bound, jax.device_get(bound.policy(bound.init(jax.random.key(seed)))))
