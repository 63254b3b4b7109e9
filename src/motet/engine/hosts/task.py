"""What every host is told of a run. No graph travels: each host traces the loop for itself, and compares."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import cloudpickle
import jax

from motet.engine.assemble import Settings
from motet.errors import BadOption, described
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.plan.plan import Plan

CARRIED = (
    "jax_enable_x64",
    "jax_num_cpu_devices",
    "jax_numpy_rank_promotion",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)
"""JAX's options that change what is computed, or where: every host has them as whoever leads the run has."""
TOLD = ("JAX_", "XLA_", "MOTET_")
"""Environment variables that begin so go to every host."""
VERSIONS = ("motet", "jax", "jaxlib", "numpy", "optax", "flax")


def _nothing(env: Any) -> None: ...


@dataclass(frozen=True)
class HostedRun:
    """A run, as its hosts know it."""

    algorithm: Any
    env: Any
    plan: str
    """As JSON."""
    iterations: int
    settings: Settings
    fingerprint: str
    configuration: Mapping[str, Any]
    """JAX's options."""
    tells: Callable[[Any], Any] = _nothing
    """What is asked of the environment when the run is over and all of it is closed; whoever leads is told."""

    @classmethod
    def of(
        cls,
        algorithm: Any,
        env: Any,
        plan: Plan,
        graph: Graph,
        settings: Settings,
        tells: Callable[[Any], Any] = _nothing,
    ) -> HostedRun:
        configuration = {name: jax.config.values[name] for name in CARRIED if name in jax.config.values}
        told = (plan.to_json(), graph.iterations, settings, fingerprint(graph), configuration, tells)
        return cls(algorithm, env, *told)

    def pack(self) -> bytes:
        """As bytes for other processes, with where modules are found here."""
        try:
            return cloudpickle.dumps(([path or os.getcwd() for path in sys.path], cloudpickle.dumps(self)))
        except Exception as error:
            raise BadOption(
                f"The algorithm or the environment cannot be sent to other processes: {described(error)}. Name the "
                "environment by its id, or make it of what is at the top of a module."
            ) from error

    def trace(self) -> tuple[Graph, Plan]:
        """The loop as it is here; what the fingerprint says of it is for others to compare."""
        plan = Plan.from_json(self.plan)
        return trace(self.algorithm, self.env, iterations=self.iterations, cuts=plan.cuts()), plan


def unpack(packed: bytes) -> HostedRun:
    """The task in another process, which may find modules where the first one does."""
    path, inner = cloudpickle.loads(packed)
    # A folder that was sent along is where this process is.
    sys.path += [each for each in (*path, os.getcwd()) if each not in sys.path and os.path.exists(each)]
    try:
        return cloudpickle.loads(inner)
    except ImportError as error:
        raise BadOption(
            f"It cannot be imported here: {error}. Whoever leads the run finds it, this host does not: install it "
            "here, or send its folder along with --working-dir (motet.Cluster(working_dir=...))."
        ) from None


def versions() -> dict[str, str]:
    """Of everything that numbers may depend on."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {"python": python, **{name: metadata.version(name) for name in VERSIONS}}


def environment() -> dict[str, str]:
    """What of this process's environment the hosts should have."""
    return {name: value for name, value in os.environ.items() if name.startswith(TOLD)}
