"""The first minutes of somebody who has installed the wheel and no extra: README's commands, in an empty folder.

The wheel is built and installed into an environment of its own. What it depends on, and nothing else, is lent by the
environment of the tests. `make newcomer` installs everything anew and follows every page.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.sharing import sharing

ROOT = Path(__file__).parents[1]
pytestmark = sharing("newcomer")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment in which the built wheel is."""
    folder = tmp_path_factory.mktemp("newcomer")
    pip = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("motet-*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for each in needed("motet") - {"motet"}:
        lend(each, packages)
    return python.parent


def needed(name: str, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """A package and everything that it depends on, without extras."""
    if name in known:
        return known
    known |= {name}
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            known = needed(canonicalize_name(requirement.name), known)
    return known


def lend(name: str, packages: Path) -> None:
    """Let an environment have a package of this one."""
    files = metadata.distribution(name).files or ()
    for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
        source = metadata.distribution(name).locate_file(top)
        if not (packages / top).exists():
            (packages / top).symlink_to(Path(str(source)))


def run(programs: Path, place: Path, *args: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "PYTEST"))}
    done = subprocess.run(
        [programs / "motet", *args], cwd=place, env=clean, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_the_first_commands_need_nothing_but_the_wheel(programs: Path, tmp_path: Path) -> None:
    where = [programs / "python", "-c", "import motet; print(motet.__file__)"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(where, env=clean, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(programs.parent)), found
    small = ["--num-envs", "8", "--num-steps", "16", "--total-timesteps", "1024", "--evaluate-episodes", "2"]
    code, said = run(programs, tmp_path, "train", "a2c", "CartPole-v1", *small, "--run-dir", "runs/first")
    assert code == 0 and "evaluation  greedy policy: return" in said, said
    code, said = run(programs, tmp_path, "evaluate", "runs/first", "--episodes", "2")
    assert code == 0 and "over 2 episodes" in said, said


@pytest.mark.parametrize(
    ("env", "extra"), [("LunarLander-v3", "box2d"), ("HalfCheetah-v5", "mujoco"), ("envpool/Pong-v5", "envpool")]
)
def test_what_an_extra_would_bring_is_said(env: str, extra: str, programs: Path, tmp_path: Path) -> None:
    code, said = run(programs, tmp_path, "train", "ppo", env)
    assert code == 2 and f"pip install 'motet[{extra}]'" in said and "Traceback" not in said, said
    assert not list(tmp_path.iterdir())
