"""Do two environments write their observations into the same memory? Pools copy in time, but other code may not."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from motet.envs.checks import copied
from motet.envs.form import flatten
from motet.envs.gymnasium import Gymnasium


def shared_memory(env: Gymnasium) -> str:
    """A finding, or nothing. Play two of them in turn, and see whether one changes what the other had returned."""
    if env.vector:
        return ""
    with closing(env.make()) as one, closing(env.make()) as other:
        first = one.reset(seed=0)[0]
        kept = copied(first)
        second = other.reset(seed=1)[0]
        if not _same(env, first, kept) or _overlap(env, first, second):
            return _finding("reset")
        first = one.step(one.action_space.sample())[0]
        kept = copied(first)
        second = other.step(other.action_space.sample())[0]
        return _finding("step") if not _same(env, first, kept) or _overlap(env, first, second) else ""


def _leaves(env: Gymnasium, observation: Any) -> list[np.ndarray]:
    return [leaf for leaf in flatten(env.form().observation_space, observation) if isinstance(leaf, np.ndarray)]


def _same(env: Gymnasium, observation: Any, kept: Any) -> bool:
    return all(map(np.array_equal, _leaves(env, observation), _leaves(env, kept)))


def _overlap(env: Gymnasium, one: Any, other: Any) -> bool:
    return any(map(np.may_share_memory, _leaves(env, one), _leaves(env, other)))


def _finding(method: str) -> str:
    return (
        f"{method} of two environments returns the same memory: what the second one does changes what the first one "
        "had returned. Make each environment's arrays in its __init__, or return copies."
    )
