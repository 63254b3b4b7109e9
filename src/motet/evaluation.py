"""`evaluate`: a policy and an environment, named or made in whatever way `train` takes one -> how good it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from motet import envs, forked
from motet.engine.conditions import kept
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment
from motet.runs import evaluate as played
from motet.runs.evaluate import Evaluation
from motet.runs.policy import Policy


def evaluate(
    policy: Policy,
    env: str | Environment | HostEnvironment | Callable[[], Any],
    *,
    episodes: int = 64,
    seed: int = 0,
    max_steps: int = 10_000,
    explore: bool = False,
    workers: int | None = None,
    step_timeout: float = 60.0,
    restarts: int = 3,
) -> Evaluation:
    """Play `episodes` whole episodes side by side, each at most `max_steps` long: without exploration, or as in
    training, with `explore`.

    `env` is an id, an environment, or a function that makes a Gymnasium environment. Host environments run in `workers`
    processes, by default one for each core, or with 0 in a thread of this one. A step of them may take `step_timeout`
    seconds, and dead workers are started anew `restarts` times.
    """
    forked.refuse()
    with kept:
        return played.evaluate(
            policy,
            envs.as_environment(env),
            episodes=episodes,
            seed=seed,
            max_steps=max_steps,
            explore=explore,
            workers=workers,
            step_timeout=step_timeout,
            restarts=restarts,
        )
