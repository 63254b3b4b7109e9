"""Where one replica of a fragment runs: a device, or a mesh of several."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from motet.flow.batch import SHARDS
from motet.plan.plan import Plan

ONE_AT_A_TIME = threading.Lock()
"""Held while a value leaves a mesh: two threads that do it at once find twice as many shards (jax 0.10.2)."""


@dataclass(frozen=True)
class Place:
    """The devices of one replica."""

    devices: tuple[Any, ...]
    store: str = ""
    """What else holds a replay here: "host" or an OpenCL device; empty: nothing."""

    @cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return jax.make_mesh((len(self.devices),), (SHARDS,), axis_types=(AxisType.Auto,), devices=self.devices)

    @property
    def sharded(self) -> bool:
        return len(self.devices) > 1

    def spec(self, axis: int | None) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, SHARDS)

    def sharding(self, axis: int | None) -> jax.sharding.Sharding:
        """How a leaf whose environments are on `axis` lies on these devices."""
        return NamedSharding(self.mesh, self.spec(axis)) if self.sharded else SingleDeviceSharding(self.devices[0])

    def put(self, leaf: Any, axis: int | None = None) -> jax.Array:
        sharding = self.sharding(axis)
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf  # It is there already: even to be told so by JAX takes time.
        if isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1:
            with ONE_AT_A_TIME:
                return jax.device_put(leaf, sharding)
        return jax.device_put(leaf, sharding)


def assign(plan: Plan, devices: Sequence[Any]) -> Mapping[str, list[Place]]:
    """Fragment -> the place of each replica. Fragments without a place take devices in turn."""
    places: dict[str, list[Place]] = {}
    turn = 0
    for name, fragment in plan.fragments.items():
        if fragment.outside:
            places[name] = [Place((jax.devices("cpu")[0],), str(fragment.place))]
            continue
        first = turn if fragment.place is None else int(fragment.place.partition(":")[2])
        places[name] = []
        for replica in range(fragment.replicas):
            start = first + replica // fragment.per_device * fragment.shards
            places[name].append(
                Place(tuple(devices[(start + shard) % len(devices)] for shard in range(fragment.shards)))
            )
        if fragment.place is None:
            turn += fragment.devices
    return places
