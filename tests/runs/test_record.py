"""Films of policies: what is drawn, that it is what an evaluation plays, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import motet
from motet.envs import registry
from motet.envs.cartpole import CartPole
from motet.envs.wrappers import ActionRepeat, FrameDelta, FrameStack, SelectObservation
from motet.runs.video import Film
from tests.runs.untrained import untrained

SMALL = motet.PPO(hidden=(8,))


@pytest.mark.parametrize("name", registry.ENVIRONMENTS)
def test_every_environment_of_motet_draws_itself(name: str) -> None:
    env: Any = motet.make(name)
    key = jax.random.key(0)
    state, _ = jax.device_get(env.reset(key))
    first = env.render(state)
    assert first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 4  # not an empty sheet
    for _ in range(5):
        state = jax.device_get(env.step(state, env.action_space.sample(key), key)[0])
    later = env.render(state)
    assert later.shape == first.shape and (later != first).any()


def test_a_wrapper_draws_what_is_inside() -> None:
    env: Any = motet.make("CartPole-v1")
    key = jax.random.key(1)
    plain = env.render(jax.device_get(env.reset(key)[0]))
    for wrap in (
        lambda env: FrameStack(env, 3),
        FrameDelta,
        lambda env: ActionRepeat(env, 2),
        lambda env: SelectObservation(FrameStack(env, 2), (0,)),
    ):
        wrapped = wrap(env)
        assert (wrapped.render(jax.device_get(wrapped.reset(key)[0])) == plain).all()
        assert wrapped.frames_per_second == env.frames_per_second == 50


def duration(path: Path) -> int:
    """Milliseconds of a .gif."""
    with Image.open(path) as film:
        total = 0
        for frame in range(film.n_frames):
            film.seek(frame)
            total += film.info["duration"]
        return total


class Windy(CartPole):
    """Chance has a part in every step."""

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return super().step(state + 0.05 * jax.random.normal(key, (4,)), action, key)


def test_a_recording_shows_the_episodes_of_the_evaluation(tmp_path: Path) -> None:
    policy = untrained(SMALL, "CartPole-v1")
    film = motet.record(policy, Windy(), tmp_path / "deep" / "film.gif", episodes=3, seed=5)
    score = motet.evaluate(policy, Windy(), episodes=3, seed=5)
    assert (film.returns == score.returns).all() and (film.lengths == score.lengths).all() and film.finished.all()
    pauses = 3 * round(0.6 * 50)
    assert duration(film.path) == 20 * (film.lengths.sum() + 3 + pauses)
    with Image.open(film.path) as picture:
        assert picture.size == (480, 256)


def test_an_mp4_has_a_picture_for_each_state(tmp_path: Path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    film = motet.record(untrained(SMALL, "Catch-v0"), "Catch-v0", tmp_path / "film.mp4", fps=12)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(film.path), "-f", "null", "-"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "192x352" in said and "12 fps" in said
    assert f"frame={film.lengths[0] + 1 + round(0.6 * 12):5d} " in said


class Dot(gymnasium.Env):
    """Three steps; draws how many are done."""

    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, modes: Any = ("rgb_array",), render_mode: str | None = None, picture: Any = None):
        self.metadata = {"render_modes": list(modes), "render_fps": 10}
        self.render_mode, self.picture = render_mode, picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 3, False, {}

    def render(self) -> Any:
        if self.picture is not None:
            return self.picture
        return np.full((15, 33, 3), 60 * self.count, np.uint8)


def dot(render_mode: str | None = None) -> gymnasium.Env:
    return Dot(render_mode=render_mode)


def colours(path: Path) -> list[int]:
    with Image.open(path) as film:
        found = []
        for frame in range(film.n_frames):
            film.seek(frame)
            found.append(int(np.asarray(film.convert("RGB")).mean().round()))
        return found


def test_a_host_environment_is_drawn_from_its_reset_to_its_end(tmp_path: Path) -> None:
    film = motet.record(untrained(SMALL, dot), dot, tmp_path / "film.gif", episodes=2)
    assert film.frames_per_second == 10 and film.lengths.tolist() == [3, 3] and film.returns.tolist() == [3.0, 3.0]
    assert colours(film.path) == [0, 60, 120, 180] * 2  # the pause is a longer last picture
    assert duration(film.path) == 100 * 2 * (4 + 6)


def test_a_host_environment_by_id_is_the_evaluation_s_with_its_wrappers(tmp_path: Path) -> None:
    env = motet.make("gymnasium/CartPole-v1", frame_stack=2, time_limit=12)
    policy = untrained(SMALL, env)
    film = motet.record(policy, env, tmp_path / "film.gif", episodes=2, seed=3)
    score = motet.evaluate(policy, env, episodes=2, seed=3, workers=0)
    assert film.returns.tolist() == score.returns.tolist() and film.lengths.max() <= 12


class Blind(motet.Environment):
    observation_space = motet.Box(0.0, 1.0, (1,))
    action_space = motet.Discrete(2)
    time_limit = 2

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros(()), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: jax.Array) -> Any:
        return state, jnp.zeros(1), jnp.ones(()), jnp.zeros((), bool)


class Wrong(Blind):
    def render(self, state: Any) -> np.ndarray:
        return np.zeros((4, 4))


def bare() -> gymnasium.Env:
    return Dot()


def words_only(render_mode: str | None = None) -> gymnasium.Env:
    return Dot(modes=("ansi",), render_mode=render_mode)


def textual(render_mode: str | None = None) -> gymnasium.Env:
    return Dot(render_mode=render_mode, picture="a dot")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Blind(), "cannot draw itself"),
        (FrameStack(Blind(), 2), "Blind cannot draw itself"),
        (Wrong(), "uint8 .height, width, 3., but is float64"),
        (bare, "made with render_mode None. Let what makes it take render_mode"),
        (words_only, "offers .'ansi'., but not 'rgb_array'"),
        (textual, "should give an array, but gave str"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_leaves_no_file(tmp_path: Path, env: Any, words: str) -> None:
    with pytest.raises((motet.BadEnvironment, motet.EnvironmentFailed), match=words):
        motet.record(untrained(SMALL, env), env, tmp_path / "film.gif")
    assert not list(tmp_path.iterdir())


def test_environments_that_step_as_one_cannot_be_drawn(tmp_path: Path) -> None:
    env = motet.make("envpool/CartPole-v1")
    with pytest.raises(motet.BadEnvironment, match=r"many environments as one.*gymnasium/ID"):
        motet.record(untrained(SMALL, env), env, tmp_path / "film.gif")


def test_bad_options_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = untrained(SMALL, "Catch-v0")
    (tmp_path / "file").write_text("")
    for path, options, words in (
        ("film.avi", {}, "an .mp4 or a .gif"),
        ("film.gif", {"episodes": 0}, "episodes must be at least 1"),
        ("film.gif", {"max_steps": 0}, "max_steps must be at least 1"),
        ("film.gif", {"fps": -1}, "fps must be above 0"),
        ("file/film.gif", {}, "cannot be written"),
    ):
        with pytest.raises(motet.BadOption, match=words):
            motet.record(policy, "Catch-v0", tmp_path / path, **options)
    with pytest.raises(motet.BadOption, match="trained for observations"):
        motet.record(policy, "CartPole-v1", tmp_path / "film.gif")
    with pytest.raises(motet.BadOption, match="policy must be"):
        motet.record("policy", "CartPole-v1", tmp_path / "film.gif")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(motet.BadOption, match=r"pip install 'motet\[video\]'"):
        motet.record(policy, "Catch-v0", tmp_path / "film.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_pictures_are_of_one_size(tmp_path: Path) -> None:
    def make() -> None:
        with Film(tmp_path / "film.gif", 10) as film:
            for width in (4, 6):
                film.add(np.zeros((4, width, 3), np.uint8))

    with pytest.raises(motet.BadEnvironment, match="of one size"):
        make()
    assert not list(tmp_path.iterdir())
