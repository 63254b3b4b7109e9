"""Whether a replay fits into the memory of the place where it will lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motet.engine.place import Place
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.replay.size import check_fits, machine_memory


def check_replay(graph: Graph, plan: Plan, places: Mapping[str, Sequence[Place]]) -> None:
    """Refuse a replay that is larger than its place, before anything is allocated.

    Devices of the host's processor share its memory; others have their own, and each holds its share of the replay. A
    store outside of XLA looks at its own memory when it is opened.
    """
    call = next((node.replay for node in graph.nodes() if node.replay and node.replay.what == "open"), None)
    if call is None:
        return
    node = next(node for node in graph.nodes() if node.replay is call)
    home = plan.homes(graph)[node.name]
    place = places[home][0]
    if place.store:
        return
    need = call.replay.nbytes(call.example, graph.num_envs)
    available, where, shared = memory_of(place.devices[0])
    parts = 1 if shared else plan.fragments[home].cut.parts
    check_fits(-(-need // parts), call.replay.capacity // parts, available, where)


def memory_of(device: Any) -> tuple[int, str, bool]:
    """The bytes that a device has, what to call it, and whether all of its kind share them."""
    stats = (device.memory_stats() or {}) if device.platform != "cpu" else {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"]), f"{device.platform}:{device.id}", False
    return machine_memory(), "this machine", True
