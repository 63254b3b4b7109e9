"""`record`: a policy and an environment -> a film of some episodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from motet import envs, forked
from motet.errors import BadOption
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment
from motet.runs import film, host_evaluation
from motet.runs.evaluate import check_task
from motet.runs.film import PAUSE, Recording
from motet.runs.policy import Policy
from motet.runs.video import Film


def record(
    policy: Policy,
    env: str | Environment | HostEnvironment | Callable[[], Any],
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = 1000,
    fps: float | None = None,
    step_timeout: float = 60.0,
) -> Recording:
    """Film `episodes` episodes without exploration, one after the other, each at most `max_steps` long.

    They are the first episodes of `evaluate` with the same seed. `path` ends in .mp4 or .gif. An environment in JAX
    draws itself by `render`; others need Gymnasium's render_mode "rgb_array". `fps` is by default what the environment
    says of itself.
    """
    forked.refuse()
    film.check(episodes, max_steps)
    if not isinstance(policy, Policy):
        raise BadOption(f"policy must be a motet.Policy, such as the policy of a result, got {policy!r}.")
    made = envs.as_environment(env)
    check_task(policy, made)
    if isinstance(made, Environment):
        return _compiled(policy, made, Path(path), episodes, seed, max_steps, fps or made.frames_per_second)
    return _hosted(policy, made, Path(path), episodes, seed, max_steps, fps, step_timeout)


def _compiled(
    policy: Policy, env: Environment, path: Path, episodes: int, seed: int, max_steps: int, fps: float
) -> Recording:
    played = film.play(policy, env, episodes, seed, max_steps)
    with Film(path, fps) as film_:
        for pictures in played.pictures(env):
            for picture in [*pictures, *[pictures[-1]] * round(PAUSE * fps)]:
                film_.add(picture)
    return Recording(path, played.returns, played.lengths, played.finished, fps)


def _hosted(
    policy: Policy,
    env: HostEnvironment,
    path: Path,
    episodes: int,
    seed: int,
    max_steps: int,
    fps: float | None,
    step_timeout: float,
) -> Recording:
    from motet.envs.filming import filmed, frames_per_second, without_window

    seen = _Camera()
    looked_at = filmed(env, seen)
    rate = fps or frames_per_second(looked_at)
    rows = []
    with without_window(), Film(path, rate) as film_:
        seen.film = film_
        for episode in range(episodes):
            seen.begin()
            first = host_evaluation.UNSEEN + episode
            limits = host_evaluation.PlayLimits(0, step_timeout, 0, first)
            rows.append(host_evaluation.play(policy, looked_at, 1, seed, max_steps, limits))
            seen.pause(round(PAUSE * rate))
    returns, lengths, finished = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Recording(path, returns, lengths, finished, rate)


class _Camera:
    """Keeps one episode's pictures: its environment begins the next one in the step that ends it."""

    def __init__(self) -> None:
        self.film: Film | None = None
        self.episodes = 0
        self.last: np.ndarray | None = None

    def begin(self) -> None:
        self.episodes = 0

    def __call__(self, picture: np.ndarray, first: bool) -> None:
        self.episodes += first
        if self.film is not None and self.episodes == 1:
            self.film.add(picture)
            self.last = picture

    def pause(self, frames: int) -> None:
        for _ in range(frames):
            assert self.film is not None
            self.film.add(self.last)
