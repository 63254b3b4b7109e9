"""Presets name no algorithm, algorithms no preset, engines neither; imports go one way; public names are pinned."""

import ast
import re
from pathlib import Path

import pytest

import motet
from motet.algorithms import ALGORITHMS
from motet.plan.presets import PRESETS

SOURCE = Path(motet.__file__).parent
PRESET_WORDS = [*PRESETS]
ALGORITHM_WORDS = [*ALGORITHMS]


def words(folder: str, names: list[str]) -> dict[str, set[str]]:
    pattern = re.compile(rf"\b({'|'.join(names)})\b", re.IGNORECASE)
    found = {path.name: set(pattern.findall(path.read_text())) for path in (SOURCE / folder).rglob("*.py")}
    return {name: hits for name, hits in found.items() if hits}


def test_folders_inside_of_rooms_are_looked_at_too() -> None:
    assert {"cpu", "hosts"} <= {path.parent.name for path in (SOURCE / "engine").rglob("*.py")}
    assert "options.py" in words("engine", ["compile"]) and "options.py" not in words("plan", ["compile"])


def test_no_plan_names_an_algorithm() -> None:
    assert words("plan", ALGORITHM_WORDS) == {}


def test_no_algorithm_names_a_preset() -> None:
    assert words("algorithms", PRESET_WORDS) == {}


def test_no_engine_names_either() -> None:
    assert words("engine", [*ALGORITHM_WORDS, *(set(PRESET_WORDS) - {"central"})]) == {}
    assert words("flow", [*ALGORITHM_WORDS, *PRESET_WORDS]) == {}


MAY_IMPORT = {
    "errors": set(),
    "memory": {"errors"},
    "bounds": set(),
    "forked": {"errors"},
    "named": {"errors"},
    "flow": {"errors", "flow"},
    "replay": {"errors", "memory", "flow", "replay"},
    "envs": {"errors", "memory", "bounds", "named", "flow", "envs"},
    "algorithms": {"errors", "named", "flow", "replay", "algorithms"},
    "plan": {"errors", "flow", "plan"},
    "engine": {"errors", "flow", "envs", "replay", "plan", "engine"},
    "runs": {"errors", "bounds", "named", "flow", "plan", "runs"},
}
"""Room -> the rooms it may import from. Whatever is not listed (training, cli) sits on top of all."""


def imports(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "motet":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {name.name.split(".")[1] for name in node.names if name.name.startswith("motet.")}
    return rooms


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_go_one_way(room: str) -> None:
    paths = (SOURCE / room).rglob("*.py") if (SOURCE / room).is_dir() else [SOURCE / f"{room}.py"]
    for path in paths:
        assert imports(path) <= MAY_IMPORT[room], path.relative_to(SOURCE)


def test_planning_touches_no_device() -> None:
    for path in (SOURCE / "plan").rglob("*.py"):
        assert not re.search(r"\bjax\.(devices|device_put|jit)|import jax\b", path.read_text()), path.name


def test_rooms_have_names_that_say_what_is_in_them() -> None:
    names = {path.stem for path in SOURCE.rglob("*.py")}
    assert not names & {"utils", "util", "common", "helpers", "misc", "base", "manager"}


def test_public_names_are_pinned_and_there() -> None:
    assert set(motet.__all__) == {
        "A2C", "Algorithm", "BadAlgorithm", "BadEnvironment", "BadOption", "BadPlan", "BatchPPO", "Box", "Callback",
        "Cluster", "DDPG",
        "DQN", "Decision", "Dict", "Discrete", "Diverged", "Environment", "EnvironmentFailed", "EnvironmentTimeout", 
        "Flow", "Fragment", "Graph", "Gymnasium", "IMPALA", "Interrupted", "Link", "MotetError", "MultiBinary",
        "MultiDiscrete",
        "NotEnoughMemory", "NotSaved", "PPO", "Plan", "Policy", "Prioritised", "Result", "Rollout", "SAC", "Spec",
        "Stalled", "TD3", "Transitions", "Tuple", "Uniform", "UnknownName", "anakin", "batch_gather", "batch_max",
        "batch_mean", "batch_min", "batch_moments", "batch_ranks", "batch_sum", "batched",
        "central", "check", "check_algorithm", "coarse", "configuration",
        "evaluate", "export", "fine", "load", "make", "multi_learner", "option", "pearl", "project", "record",
        "resume", "sebulba", "trace", "train", "virtual_devices", "where_any",
    }  # fmt: skip
    for name in motet.__all__:
        assert getattr(motet, name) is not None
