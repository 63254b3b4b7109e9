"""For which code, libraries, machines and shapes a profile that was measured holds."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.engine import profiles
from motet.envs import code_of
from motet.flow.host import HostEnvironment
from motet.flow.trace import trace
from motet.plan import catalogue


def test_another_machine_has_another_profile() -> None:
    graph, machine = trace(motet.A2C(num_envs=4), motet.make("CartPole-v1"), iterations=5), catalogue.a100_node()
    gpu, cpu = machine.devices
    others = [
        replace(machine, name="other"),
        replace(machine, cores=machine.cores + 1),
        replace(machine, memory=machine.memory / 2),
        replace(machine, devices=(replace(gpu, count=4), cpu)),
        replace(machine, devices=(replace(gpu, name="another card"), cpu)),
        replace(machine, devices=(cpu, gpu)),
    ]
    keys = {profiles.key(graph, each, {}) for each in (machine, *others)}
    assert len(keys) == 1 + len(others)
    assert profiles.key(graph, replace(machine), {}) == profiles.key(graph, machine, {})


def test_code_that_was_changed_has_another_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, machine = trace(motet.A2C(num_envs=4), motet.make("CartPole-v1"), iterations=5), catalogue.a100_node()
    before = profiles.key(graph, machine, {})
    (tmp_path / "engine").mkdir()
    file = tmp_path / "engine" / "perform.py"
    found = []
    monkeypatch.setattr(profiles, "PACKAGE", tmp_path)
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        file.write_text(text)
        profiles.source.cache_clear()
        found.append(profiles.key(graph, machine, {}))
    assert found[0] == found[2] and len({before, *found}) == 3
    file.rename(tmp_path / "perform.py")
    profiles.source.cache_clear()
    assert profiles.key(graph, machine, {}) not in found
    profiles.source.cache_clear()


def test_all_of_the_package_is_read_once_and_soon() -> None:
    assert Path(motet.__file__).parent == profiles.PACKAGE
    profiles.source.cache_clear()
    began = time.process_time()
    first = profiles.source(profiles.PACKAGE)
    assert time.process_time() - began < 0.3  # 15 ms where nothing else is done
    assert profiles.source(profiles.PACKAGE) is first


def test_a_host_environment_is_known_by_its_code_or_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("envpool")
    real = metadata.version
    pool = code_of(motet.make("envpool/CartPole-v1"))  # type: ignore[arg-type]
    monkeypatch.setattr(metadata, "version", lambda name: "99" if name == "envpool" else real(name))
    assert pool == f"envpool {real('envpool')}" and code_of(motet.make("envpool/CartPole-v1")) == "envpool 99"  # type: ignore[arg-type]


def test_a_host_environment_of_ones_own_is_known_by_its_code() -> None:
    def made(steps: int) -> HostEnvironment:
        names: dict[str, Any] = {"HostEnvironment": HostEnvironment, "__name__": "nowhere"}
        exec(f"class Mine(HostEnvironment):\n    def open(self, opening):\n        return {steps}\n", names)
        return names["Mine"]()

    assert code_of(made(2)) == code_of(made(2)) != code_of(made(3))
