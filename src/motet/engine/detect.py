"""The machine that this is, as a description."""

from __future__ import annotations

import os
import platform as system
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from motet.plan import catalogue
from motet.plan.machine import Device, Machine, kind_named

KNOWN = {
    "TPU v3": lambda: catalogue.find("tpu-v3-host").devices[0],
    "TPU v4": lambda: catalogue.find("tpu-v4-host").devices[0],
    "A100": lambda: catalogue.find("a100-node").devices[0],
    "P100": lambda: catalogue.find("p100-cluster").devices[0],
}
"""What JAX calls a device, or a part of it -> what the catalogue knows of it."""


def detect() -> Machine:
    """Cores, memory and devices of this machine. Its rates are the catalogue's; a profile measures what matters."""
    memory = _memory()
    usual = [_device(jax.devices(), memory)]
    if usual[0].kind != "cpu":
        usual.append(_processor(1, memory))
    return Machine(
        name=system.node() or "this machine",
        cores=cores(),
        memory=memory,
        devices=tuple(usual),
        source="detected; peaks, bandwidths and watts are the catalogue's",
    )


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(found: Sequence[Any], memory: float) -> Device:
    first = found[0]
    if first.platform == "cpu":
        return _processor(len(found), memory)
    known = next((make() for word, make in KNOWN.items() if word in first.device_kind), None)
    stats = first.memory_stats() or {}
    kind = kind_named(first.platform)
    assumed = replace(known or catalogue.find("a100-node").devices[0], kind=kind, name=first.device_kind)
    return replace(assumed, count=len(found), memory=float(stats.get("bytes_limit", assumed.memory)))


def _processor(count: int, memory: float) -> Device:
    """JAX may show the cores as several devices; they are the same cores. XLA's small operations take longer here than
    the catalogue assumes of hosts that only feed accelerators."""
    return replace(catalogue.processor(system.machine() or "cpu", memory, count), latency=1.2e-6)


def _memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 8e9
