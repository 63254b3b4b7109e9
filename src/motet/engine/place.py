"""Where one replica of a fragment runs: a device, or a mesh of several."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from motet.flow.batch import SHARDS
from motet.plan.places import locate, platforms
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

    def first(self, leaf: Any) -> jax.Array:
        """A leaf on the first device alone."""
        return Place(self.devices[:1]).put(leaf)


def assign(plan: Plan, devices: Mapping[str, Sequence[Any]]) -> Mapping[str, list[Place]]:
    """Fragment -> the place of each replica, of the devices of each platform, the usual one first."""
    spots = locate(plan, {platform: len(found) for platform, found in devices.items()})
    return {
        name: [Place(tuple(devices[spot.platform][number] for number in spot.devices), spot.store) for spot in found]
        for name, found in spots.items()
    }


def devices_for(plan: Plan) -> dict[str, Sequence[Any]]:
    """The devices here of every platform that the plan names, the usual one first; a platform that JAX does not have
    is left out, for `check` to report."""
    found: dict[str, Sequence[Any]] = {}
    for platform in platforms(plan, jax.devices()[0].platform):
        with suppress(RuntimeError):
            found[platform] = jax.devices(platform)
    return found
