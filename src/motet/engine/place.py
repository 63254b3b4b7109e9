"""Where one member of a fragment runs: a device, or a mesh of several, which may be a part of one that spans hosts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from motet.flow.batch import SHARDS
from motet.plan.hosts import span
from motet.plan.places import Spot, locate, platforms
from motet.plan.plan import Plan

ONE_AT_A_TIME = threading.Lock()
"""Held while a value leaves a mesh: two threads that do it at once find twice as many shards (jax 0.10.2)."""


@dataclass(frozen=True)
class Place:
    """The devices of one member. Whatever it holds lies on these, and is as long as its share of the environments."""

    devices: tuple[Any, ...]
    store: str = ""
    """What else holds a replay here: "host" or an OpenCL device; empty: nothing."""
    everywhere: tuple[Any, ...] = ()
    """If its programs span hosts: the devices of all members, in the order of their shards."""

    @cached_property
    def mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), (SHARDS,), axis_types=(AxisType.Auto,))

    @cached_property
    def whole(self) -> Place:
        """Where its programs run: here, or on all hosts that they span."""
        return Place(self.everywhere) if self.everywhere else self

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

    def put_all(self, leaves: Iterable[Any], axes: Iterable[int | None]) -> tuple[jax.Array, ...]:
        return tuple(map(self.put, leaves, axes))

    def enter(self, leaf: Any, axis: int | None) -> jax.Array:
        """This member's share of a leaf -> the leaf of a program that spans hosts. Nothing is copied or sent."""
        leaf = self.put(leaf, axis)
        times = len(self.everywhere) // len(self.devices)
        return _of(leaf, _scaled(leaf.shape, axis, times, 1), self.whole.sharding(axis))

    def leave(self, leaf: jax.Array, axis: int | None) -> jax.Array:
        """A leaf of a program that spans hosts -> this member's share of it."""
        times = len(self.everywhere) // len(self.devices)
        return _of(leaf, _scaled(leaf.shape, axis, 1, times), self.sharding(axis))

    def first(self, leaf: Any) -> jax.Array:
        """A leaf on the first device alone."""
        return Place(self.devices[:1]).put(leaf)


def _scaled(shape: tuple[int, ...], axis: int | None, times: int, parts: int) -> tuple[int, ...]:
    return shape if axis is None else (*shape[:axis], shape[axis] * times // parts, *shape[axis + 1 :])


def _of(leaf: jax.Array, shape: tuple[int, ...], sharding: jax.sharding.Sharding) -> jax.Array:
    """What the devices here hold of a leaf, as an array of another shape."""
    held = [shard.data for shard in leaf.addressable_shards]
    return jax.make_array_from_single_device_arrays(shape, sharding, held)


def assign(plan: Plan, devices: Mapping[str, Sequence[Any]]) -> Mapping[str, list[Place]]:
    """Fragment -> the place of each member, of this host's devices of each platform, the usual one first. Members on
    other hosts have places there; theirs here say only what they would be."""
    spots = locate(plan, {platform: len(found) for platform, found in devices.items()})
    places: dict[str, list[Place]] = {}
    for name, found in spots.items():
        everywhere = _everywhere(found) if span(plan, name) > 1 else ()
        places[name] = [
            Place(tuple(devices[spot.platform][number] for number in spot.devices), spot.store, everywhere)
            for spot in found
        ]
    return places


def _everywhere(spots: Sequence[Spot]) -> tuple[Any, ...]:
    """The devices of all members of a program that spans hosts: the processes of JAX are numbered as the hosts are."""
    return tuple(jax.local_devices(spot.host, spot.platform)[number] for spot in spots for number in spot.devices)


def devices_for(plan: Plan) -> dict[str, Sequence[Any]]:
    """The devices here of every platform that the plan names, the usual one first; a platform that JAX does not have
    is left out, for `check` to report."""
    found: dict[str, Sequence[Any]] = {}
    for platform in platforms(plan, jax.local_devices()[0].platform):
        with suppress(RuntimeError):
            found[platform] = jax.local_devices(backend=platform)
    return found
