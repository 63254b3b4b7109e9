"""A replay is weighed against the memory of the place where it will lie, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

import motet
from motet.engine.place import Place
from motet.engine.replay_fits import check_replay, memory_of
from motet.errors import BadOption
from motet.plan.plan import Plan
from tests.laws.cases import ALGORITHMS, traced


@dataclass(frozen=True)
class Accelerator:
    """A device with memory of its own, which this test makes as small as it likes."""

    memory: int
    platform: str = "cuda"
    id: int = 1

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": 0, "bytes_limit": self.memory}


def weighed(plan: Plan, memory: int, **device: Any) -> None:
    """Check DQN's replay on a machine whose accelerators have so many bytes each."""
    graph = traced(replace(ALGORITHMS["dqn"], buffer_size=4096), plan)  # type: ignore[arg-type]
    accelerators = (Accelerator(memory, **device), Accelerator(memory, **device))
    places = {name: [Place(accelerators[: each.shards])] for name, each in plan.fragments.items()}
    check_replay(graph, plan, places)


def test_a_replay_larger_than_its_device_is_refused_with_a_capacity_that_fits() -> None:
    with pytest.raises(BadOption, match=r"but cuda:1 has 32.00 KiB; capacity=[\d,]+ would fit"):
        weighed(motet.anakin(), 2**15)
    weighed(motet.anakin(), 2**20)


def test_each_device_holds_its_share_of_a_replay_in_shards() -> None:
    plan = motet.anakin(2)
    with pytest.raises(BadOption, match="cuda:1"):
        weighed(motet.anakin(), 120_000)
    weighed(plan, 120_000)
    with pytest.raises(BadOption, match="A replay of 2,048 items"):
        weighed(plan, 60_000)


def test_devices_of_the_processor_share_the_machines_memory() -> None:
    size, where, shared = memory_of(Accelerator(1, platform="cpu"))
    assert size > 1 and where == "this machine" and shared
    weighed(motet.anakin(), 1, platform="cpu")


def test_a_device_that_does_not_say_is_taken_for_the_machine() -> None:
    class Silent(Accelerator):
        def memory_stats(self) -> Any:
            return None

    assert memory_of(Silent(1))[2]
