"""The gallery: every example runs, says what it shows and how to run it, and is in the index."""

from __future__ import annotations

import ast
import importlib
import os
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
    "own_environment": ({"steps": 1_536, "workers": 1}, ("over 16 episodes", "at 18 degrees:", "at 22 degrees:")),
    "own_jax_environment": ({"steps": 4_096}, ("usual rocket:", "weaker engine:", "over 64 episodes")),
    "images": ({"steps": 576}, ("Box(0.0, 255.0, (40, 40, 1), uint8)", "over 64 episodes")),
    "memory": ({"steps": 4_096}, ("core none: return", "core gru: return", "three looks")),
    "own_algorithm": ({"steps": 2_048}, ("over 32 episodes", "largest difference between the plans:")),
    "own_plan": ({"steps": 400}, ("DQN on CartPole-v1,", "SAC on Pendulum-v1,", "warehouse -> learner")),
    "sweep": (
        {"steps": 4_096, "seeds": (0, 1), "rates": (1e-3,), "episodes": 4},
        ("learning rate", "seed 1", "half way", "0.001"),
    ),
    "robot_loop": ({"steps": 400, "seconds": 0.1, "hertz": 100.0}, ("10 decisions", "a decision takes")),
}
"""Name -> how to run it quickly, and what it then prints."""

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Imports an example as its worker processes will: by its name, from a folder that is searched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@every_example
def test_it_runs_and_says_what_came_of_it(name: str, example: Callable[[str], Any], capsys: Any) -> None:
    options, prints = EXAMPLES[name]
    example(name).main(**options)
    shown = capsys.readouterr().out
    for text in prints:
        assert text in shown, f"{name} does not print {text!r}, but\n{shown}"


def test_the_two_plans_of_the_own_algorithm_agree(example: Callable[[str], Any], capsys: Any) -> None:
    example("own_algorithm").main(steps=2_048)
    assert float(capsys.readouterr().out.split()[-1]) < 1e-4


def test_one_runs_as_a_script_with_options(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "own_plan.py"), "--steps", "200", "--save", "plan.json"]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert '"warehouse"' in (tmp_path / "plan.json").read_text()


@every_file
def test_it_is_run_here_and_in_the_index(file: Path) -> None:
    assert file.stem in EXAMPLES
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text()


@every_file
def test_it_is_short_and_says_how_to_run_it(file: Path) -> None:
    text = file.read_text()
    about = ast.get_docstring(ast.parse(text)) or ""
    assert f"python examples/{file.name}" in about
    assert text.count("\n") <= LONGEST
