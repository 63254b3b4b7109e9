"""The processes of a generation as one group of JAX's, whose programs may span them all.

JAX's own service lets them find each other. That it may end processes which have been silent is left to whoever leads
the run, and who ends the generation then.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import jax
import jax.numpy as jnp

from motet.engine.place import Place
from motet.errors import Disconnected
from motet.flow.batch import SHARDS

SILENCE = 7 * 24 * 3600
"""Seconds after which JAX takes a process for dead: long after whoever leads does."""
PATIENCE = 60
"""Seconds that processes have to find each other: all are there when they are asked to."""


def offer(interface: str) -> str:
    """An address of this machine where the processes of a group may meet."""
    with socket.socket() as found:
        found.bind((interface, 0))
        return f"{interface}:{found.getsockname()[1]}"


def join(address: str, count: int, index: int) -> None:
    """Become process `index` of `count` that meet at an address of the first. JAX's devices must not be in use yet."""
    if jax.distributed.is_initialized():
        return  # a process that serves several runs stays where it is
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it watches signals, which are not its business here
    try:
        jax.distributed.initialize(
            address,
            count,
            index,
            cluster_detection_method="deactivate",
            initialization_timeout=PATIENCE,
            coordinator_bind_address=address,  # and not on all networks of the machine
            heartbeat_timeout_seconds=SILENCE,
        )
    except RuntimeError as error:
        raise Disconnected(f"The hosts could not meet at {address}: {error}") from error


def greet(places: Iterable[Place]) -> None:
    """Let the devices of every program that spans hosts connect, while all hosts are here: to wait for somebody who
    comes late, because it still compiles, is possible only afterwards."""
    for place in places:
        rows, leaf = place.spec(0), place.enter(jnp.zeros(len(place.devices), jnp.int32), 0)
        meet = jax.shard_map(_sum, mesh=place.whole.mesh, in_specs=rows, out_specs=rows)
        try:
            jax.block_until_ready(jax.jit(meet)(leaf))
        except jax.errors.JaxRuntimeError as error:
            raise Disconnected(f"The devices of the hosts could not connect: {error}") from error


def _sum(leaf: jax.Array) -> jax.Array:
    return leaf + jax.lax.psum(leaf, SHARDS)
