"""Energy is read where a machine counts it, wraps included, and not invented where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from motet.engine.power import Energy, nvml_counters, rapl_counters


def tree(folder: Path, **energies: int) -> Path:
    """A powercap tree as Linux has it, with two processors and a domain inside of the first."""
    for name, energy in energies.items():
        domain = folder / name.replace("_", ":").replace("rapl", "intel-rapl")
        domain.mkdir(parents=True, exist_ok=True)
        (domain / "name").write_text(f"package-{name[-1]}\n")
        (domain / "max_energy_range_uj").write_text("262143328850\n")
        (domain / "energy_uj").write_text(f"{energy}\n")
    return folder


def test_processors_are_added_up_and_their_domains_are_not(tmp_path: Path) -> None:
    tree(tmp_path, rapl_0=1_000_000, rapl_1=5_000_000, rapl_0_0=900_000)
    energy = Energy.begin(tmp_path)
    assert [each.name for each in energy.counters] == ["package-0", "package-1"]
    assert energy.joules() == 0.0
    tree(tmp_path, rapl_0=3_500_000, rapl_1=5_500_000, rapl_0_0=950_000)
    assert energy.joules() == pytest.approx(3.0)
    assert energy.watts() is not None


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    tree(tmp_path, rapl_0=262_143_000_000)
    energy = Energy.begin(tmp_path)
    tree(tmp_path, rapl_0=1_000_000)
    assert energy.joules() == pytest.approx(0.32885 + 1.0)
    tree(tmp_path, rapl_0=2_000_000)
    assert energy.joules() == pytest.approx(0.32885 + 2.0)


def test_what_may_not_be_read_is_left_out(tmp_path: Path) -> None:
    tree(tmp_path, rapl_0=1, rapl_1=2)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("garbage")
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert list(rapl_counters(tmp_path)) == []
    nothing = Energy.begin(tmp_path / "nowhere")
    assert nothing.joules() is None and nothing.watts() is None


class Cards:
    """What NVML says of two cards, in millijoules."""

    energies = (1000, 2000)

    def nvmlInit(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return self.energies[handle]


class Old(Cards):
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> Any:
        raise RuntimeError("Not Supported")


def test_graphics_cards_are_read() -> None:
    cards = Cards()
    energy = Energy(list(nvml_counters(cards)))
    assert energy.joules() == 0.0
    cards.energies = (1500, 4000)
    assert energy.joules() == pytest.approx(2.5)
    assert list(nvml_counters(Old())) == []
    assert list(nvml_counters()) == []  # there is none here
