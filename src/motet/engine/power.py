"""What a machine draws, read from its own counters: RAPL's for processors, NVML's for graphics cards.

Where there is no counter, or it may not be read, there is no measurement, and whoever asks falls back on a model and
says so. What only some of the devices are counted for, is said to be without the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RAPL = Path("/sys/class/powercap")


@dataclass
class Counter:
    """Energy that only grows, but for where it begins anew: RAPL's counters wrap after some minutes."""

    name: str
    read: Callable[[], float]
    """Joules."""
    wraps_at: float = 0.0
    """Joules after which it begins anew; 0: never."""
    kind: str = "cpu"
    """Of the devices that it counts for."""
    last: float | None = None
    total: float = 0.0

    def look(self) -> float:
        """Joules since the first look. Looks must be closer together than a wrap."""
        now = self.read()
        if self.last is not None:
            gained = now - self.last
            self.total += gained + self.wraps_at if gained < 0 else gained
        self.last = now
        return self.total


@dataclass
class Energy:
    """What was drawn since `begin`."""

    counters: list[Counter]
    began: float = field(default_factory=time.monotonic)
    failed: bool = False
    """Whether a counter could no longer be read: what the others count is not all, and how much is missing nobody
    knows."""

    @staticmethod
    def begin(rapl: Path = RAPL) -> Energy:
        energy = Energy([*rapl_counters(rapl), *nvml_counters()])
        energy.joules()
        return energy

    def joules(self) -> float | None:
        """None if nothing can be read, or no longer all of it."""
        if not self.counters or self.failed:
            return None
        try:
            return sum(each.look() for each in self.counters)
        except Exception:  # whatever a file or a driver raises: nobody's run ends because its watts are not known
            self.failed = True
            return None

    def watts(self) -> float | None:
        """The mean since the beginning."""
        joules, seconds = self.joules(), time.monotonic() - self.began
        return joules / seconds if joules is not None and seconds > 0 else None

    def without(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Those kinds of devices that a run uses and nothing counts for. Every run uses the processor."""
        return tuple(sorted({"cpu", *kinds} - {each.kind for each in self.counters}))


def rapl_counters(folder: Path = RAPL) -> Iterator[Counter]:
    """One for each processor, and for memory that is a domain beside them; domains inside of one are part of it.
    "psys" is all that a system has, its processors too: it counts where they do not. Those that may not be read are
    left out."""
    found = list(_domains(folder))
    beside = [each for each in found if not each.name.startswith("psys")]
    processors = any(not each.name.startswith("dram") for each in beside)
    yield from beside if processors else (each for each in found if each not in beside)


def _domains(folder: Path) -> Iterator[Counter]:
    """Those that lie in no other one."""
    for domain in sorted(folder.glob("intel-rapl:*")):
        if domain.name.count(":") != 1:
            continue
        try:
            name, wraps_at = (domain / "name").read_text().strip(), _joules(domain / "max_energy_range_uj")
            _joules(domain / "energy_uj")
        except (OSError, ValueError):
            continue
        yield Counter(name, lambda domain=domain: _joules(domain / "energy_uj"), wraps_at)


def _joules(file: Path) -> float:
    return int(file.read_text()) / 1e6


def nvml_counters(library: Any = None) -> Iterator[Counter]:
    """One for each card of NVIDIA's, if their library for Python is installed and finds any."""
    try:
        if library is None:
            import pynvml as library  # type: ignore[import-not-found,no-redef]
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(each) for each in range(library.nvmlDeviceGetCount())]
        for handle in handles:
            library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # not installed, no card, or one that does not count
        return
    for number, handle in enumerate(handles):
        yield Counter(
            f"gpu:{number}", lambda handle=handle: library.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, kind="gpu"
        )
