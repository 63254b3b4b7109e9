"""The gallery: every example runs, says what it shows and how to run it, and is in the index."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
LONGEST = 90

EXAMPLES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "own_environment": ({"steps": 1_536, "workers": 1}, ("over 16 episodes", "at 18 degrees: ", "at 22 degrees: ")),
    "images": ({"steps": 288}, (r"shape=\(40, 40, 1\), dtype=uint8", "over 64 episodes")),
    "memory": ({"steps": 2_048, "cores": ("gru",)}, ("core gru: return", "three looks")),
    "own_network": ({"steps": 1_024, "envs": 8}, ("policy: <class 'own_network.Branches'>", "over 32 episodes")),
    "own_algorithm": ({"steps": 1_024}, ("over 32 episodes", r"between the plans: (0\.0|[\d.]+e-(0[5-9]|1\d))$")),
    "own_plan": (
        {"steps": 400, "save": Path("plan.json")},
        ("DQN on CartPole-v1,", "SAC on Pendulum-v1,", "warehouse -> learner"),
    ),
    "sweep": (
        {"steps": 2_048, "seeds": (0, 1), "rates": (1e-3,), "episodes": 4},
        ("learning rate", "seed 1", "half way", r"0\.001"),
    ),
    "robot_loop": ({"steps": 400, "seconds": 0.1, "hertz": 100.0}, ("10 decisions", "a decision takes")),
}
"""Name -> how to run it quickly, and patterns of what it then prints."""

SCRIPT, SHOWN = "own_jax_environment", ("2,048 in 1 iterations", "usual rocket: .* over 64 episodes", "weaker engine: ")
"""The one that is run as users run it."""

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Imports an example as its worker processes will: by its name, from a folder that is searched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jax.device_count", lambda: 1)  # programs for one device are compiled sooner
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.mark.apart
@every_example
def test_it_runs_and_says_what_came_of_it(name: str, example: Callable[[str], Any], capsys: Any) -> None:
    options, prints = EXAMPLES[name]
    example(name).main(**options)
    shown = capsys.readouterr().out
    assert_shown(name, prints, shown)


def test_one_runs_as_a_script_with_options(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / f"{SCRIPT}.py"), "--steps", "2_048"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert_shown(SCRIPT, SHOWN, ran.stdout)


def assert_shown(name: str, patterns: tuple[str, ...], shown: str) -> None:
    for pattern in patterns:
        assert re.search(pattern, shown, re.MULTILINE), f"{name} does not print {pattern!r}, but\n{shown}"


@every_file
def test_it_is_run_here_and_in_the_index(file: Path) -> None:
    assert file.stem in {*EXAMPLES, SCRIPT}
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text()


@every_file
def test_it_is_short_and_says_how_to_run_it(file: Path) -> None:
    text = file.read_text()
    about = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{file.name}" in about
    assert text.count("\n") <= LONGEST
