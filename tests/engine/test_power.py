"""Energy is read where a machine counts it, wraps included, and not invented where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from motet.engine.power import Energy, nvml_counters, rapl_counters


def tree(folder: Path, names: Mapping[str, str] | None = None, **energies: int) -> Path:
    """A powercap tree as Linux has it, with two processors and a domain inside of the first; or with such `names`."""
    for name, energy in energies.items():
        domain = folder / name.replace("_", ":").replace("rapl", "intel-rapl")
        domain.mkdir(parents=True, exist_ok=True)
        (domain / "name").write_text(f"{(names or {}).get(name, f'package-{name[-1]}')}\n")
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


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        ({"rapl_1": "psys"}, ["package-0", "package-2"]),  # all of a system, with its processors
        ({"rapl_1": "psys-1", "rapl_2": "dram"}, ["package-0", "dram"]),
        ({"rapl_0": "psys", "rapl_1": "psys-1", "rapl_2": "dram"}, ["psys", "psys-1"]),
    ],
)
def test_nothing_is_counted_twice(tmp_path: Path, names: dict[str, str], counted: list[str]) -> None:
    """What a system draws is counted only where its processors are not."""
    tree(tmp_path, names, rapl_0=1, rapl_1=2, rapl_2=3)
    assert [each.name for each in rapl_counters(tmp_path)] == counted


def test_all_of_a_system_counts_where_its_processors_may_not_be_read(tmp_path: Path) -> None:
    tree(tmp_path, {"rapl_1": "psys"}, rapl_0=1_000_000, rapl_1=1_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    energy = Energy.begin(tmp_path)
    tree(tmp_path, {"rapl_1": "psys"}, rapl_1=4_000_000)
    assert energy.joules() == pytest.approx(3.0)


@pytest.mark.parametrize("trouble", ["vanished", "forbidden", "garbage"])
def test_a_counter_that_fails_ends_the_measurement_and_not_the_run(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others count would be less than what was drawn, so nothing is said to be measured from then on."""
    tree(tmp_path, rapl_0=1, rapl_1=2)
    energy, file = Energy.begin(tmp_path), tmp_path / "intel-rapl:1" / "energy_uj"
    if trouble == "vanished":
        file.unlink()
    elif trouble == "garbage":
        file.write_text("")
    else:

        def forbidden() -> float:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(energy.counters[1], "read", forbidden)
    assert energy.joules() is None and energy.watts() is None
    monkeypatch.undo()
    tree(tmp_path, rapl_0=5_000_000, rapl_1=5_000_000)  # it is there again, and nobody knows what it missed
    assert energy.joules() is None and energy.watts() is None


def test_devices_that_nothing_counts_are_named(tmp_path: Path) -> None:
    processors, cards = list(rapl_counters(tree(tmp_path, rapl_0=1))), list(nvml_counters(Cards()))
    assert Energy(processors).without({"cpu"}) == () and Energy(processors).without(set()) == ()
    assert Energy(processors).without({"gpu", "cpu"}) == ("gpu",)
    assert Energy([*processors, *cards]).without({"gpu"}) == ()
    assert Energy([*processors, *cards]).without({"tpu"}) == ("tpu",)
    assert Energy(cards).without({"gpu"}) == ("cpu",)


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
