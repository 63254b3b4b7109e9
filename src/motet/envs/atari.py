"""Atari games with the usual preprocessing."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

from motet.errors import BadEnvironment, UnknownName

MISSING = "Atari games need ale-py and opencv-python: pip install 'motet[atari]'."


@dataclass(frozen=True)
class Atari:
    """Makes one game. `motet.envs.gymnasium.Gymnasium` takes it as its `make`; it travels to workers."""

    game: str
    """Such as "ALE/Pong-v5"."""
    noops: int = 30
    """At most so many steps without action begin an episode."""
    frame_skip: int = 4
    """Frames that an action lasts; the observation is the maximum of the last two."""
    size: int = 84
    stack: int = 4
    """Frames in one observation, the oldest first: [stack, size, size] bytes."""
    episodic_life: bool = False
    """Whether the loss of a life ends an episode. The game itself goes on."""
    clip_reward: bool = True
    """Whether a reward is replaced by its sign."""
    sticky_actions: float = 0.25
    """How likely a frame repeats the action before it, as Machado et al. (2018) advise."""

    render_mode: str | None = None
    """How Gymnasium draws it, where it is to be looked at."""

    @property
    def name(self) -> str:
        return self.game

    def __call__(self) -> gymnasium.Env:
        register_games()
        if self.game not in gymnasium.registry:
            raise UnknownName("Atari game", self.game, [name for name in gymnasium.registry if "ALE/" in name])
        drawn: dict[str, Any] = {"render_mode": self.render_mode} if self.render_mode else {}
        env = gymnasium.make(
            self.game,
            frameskip=1,
            repeat_action_probability=self.sticky_actions,
            disable_env_checker=True,
            **drawn,
        )
        env = AtariPreprocessing(env, noop_max=self.noops, frame_skip=self.frame_skip, screen_size=self.size)
        if self.episodic_life:
            env = EpisodicLife(env)
        if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
            env = FireReset(env)
        if self.clip_reward:
            env = TransformReward(env, _sign)
        return FrameStackObservation(env, self.stack)


def register_games() -> None:
    """Let Gymnasium know the ids of the games."""
    try:
        games = import_module("ale_py")
        import_module("cv2")  # Gymnasium's preprocessing uses it.
    except ImportError as error:
        raise BadEnvironment(MISSING) from error
    gymnasium.register_envs(games)


def _sign(reward: SupportsFloat) -> float:
    return float(np.sign(float(reward)))


class EpisodicLife(gymnasium.Wrapper):
    """Ends an episode with each life. Only when the game is over does a reset begin a new game; otherwise it goes on,
    so that the lives after the first are seen too."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._lives, self._is_over = 0, True

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._is_over = terminated or truncated
        lives = _lives(self.env)
        lost, self._lives = 0 < lives < self._lives, lives
        return observation, reward, terminated or lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._is_over or seed is not None:
            result = self.env.reset(seed=seed, options=options)
        else:
            observation, _, terminated, truncated, info = self.env.step(0)
            result = self.env.reset(options=options) if terminated or truncated else (observation, info)
        self._lives, self._is_over = _lives(self.env), False
        return result


class FireReset(gymnasium.Wrapper):
    """Presses the fire button after a reset, in games that wait for it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        fire = self.env.unwrapped.get_action_meanings().index("FIRE")  # type: ignore[attr-defined]
        observation, _, terminated, truncated, info = self.env.step(fire)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)


def _lives(env: gymnasium.Env) -> int:
    return env.unwrapped.ale.lives()  # type: ignore[attr-defined]


def atari(game: str, **options: Any) -> Atari:
    """`Gymnasium(atari("ALE/Pong-v5"))`; the options are the fields of `Atari`."""
    return Atari(game, **options)
