"""Host environments that are looked at: each picture is handed on as it is drawn."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from motet.envs.atari import Atari
from motet.envs.by_id import ById
from motet.envs.gymnasium import Gymnasium
from motet.envs.host_wrappers import Wrapped
from motet.errors import BadEnvironment, described
from motet.flow.host import HostEnvironment

MODE = "rgb_array"
NO_WINDOW = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
"""What keeps pygame from looking for a screen and loudspeakers, and from complaining where there are none."""

Look = Callable[[np.ndarray, bool], None]
"""Is given each picture, and whether an episode begins with it."""


def filmed(env: HostEnvironment, look: Look) -> Gymnasium:
    """The same environment, which draws every state for `look`. It is for one thread of this process."""
    if not isinstance(env, Gymnasium) or env.vector:
        raise BadEnvironment(
            f"{env.name} steps many environments as one, which cannot be drawn. Use the same task as a single "
            "environment of Gymnasium, such as gymnasium/ID."
        )
    seen = Gymnasium(Filmed(drawing(env.make), look, env.name), check_bounds=env.check_bounds)
    seen.name = env.name
    return seen


@contextlib.contextmanager
def without_window() -> Iterator[None]:
    """Draw into arrays alone; what somebody chose otherwise stays."""
    added = {name: value for name, value in NO_WINDOW.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def frames_per_second(env: HostEnvironment) -> float:
    """How fast the environment says that it is to be looked at."""
    made = env.make() if isinstance(env, Gymnasium) and not env.vector else None
    try:
        told = (getattr(made, "metadata", None) or {}).get("render_fps")
    finally:
        if made is not None:
            made.close()
    return float(told) if isinstance(told, int | float) and told > 0 else 30.0


def drawing(make: Any) -> Any:
    """What makes the same environment, able to draw, as far as `make` can be told so."""
    if isinstance(make, ById):
        return replace(make, options={**make.options, "render_mode": MODE})
    if isinstance(make, Wrapped):
        return replace(make, make=drawing(make.make))
    if isinstance(make, Atari):
        return replace(make, render_mode=MODE)
    try:
        takes = "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        takes = False
    return partial(make, render_mode=MODE) if takes else make


@dataclass(frozen=True)
class Filmed:
    """Makes the environment, and sees whether it can draw."""

    make: Callable[[], Any]
    look: Look
    name: str

    def __call__(self) -> Any:
        env = self.make()
        if getattr(env, "render_mode", None) != MODE:
            env.close()
            raise BadEnvironment(
                f"{self.name!r} cannot be drawn: it was made with render_mode {getattr(env, 'render_mode', None)!r}. "
                f"Let what makes it take render_mode, and hand render_mode={MODE!r} to gymnasium.make."
            )
        modes = (getattr(env, "metadata", None) or {}).get("render_modes", ())
        if MODE not in modes:
            env.close()
            raise BadEnvironment(f"{self.name!r} cannot be drawn: it offers {list(modes)}, but not {MODE!r}.")
        return _Filming(env, self.look, self.name)


class _Filming(gymnasium.Wrapper):
    """Draws after every reset and step."""

    def __init__(self, env: gymnasium.Env, look: Look, name: str):
        super().__init__(env)
        self._look, self._name = look, name

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self._show(True)
        return result

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._show(False)
        return result

    def _show(self, first: bool) -> None:
        try:
            picture = self.env.render()
        except Exception as error:
            raise BadEnvironment(f"{self._name!r} cannot be drawn: its render() raised {described(error)}") from error
        if not isinstance(picture, np.ndarray):
            raise BadEnvironment(
                f"{self._name!r} cannot be drawn: its render() should give an array, but gave {type(picture).__name__}."
            )
        self._look(np.array(picture), first)
