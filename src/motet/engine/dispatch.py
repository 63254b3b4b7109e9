"""How JAX computes on the CPU, where training loops are long chains of small operations."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params
from jax.extend.random import threefry2x32_p
from jax.interpreters import mlir


def inline() -> None:
    """Compute on the CPU in the thread that asks for it.

    JAX would hand each computation to a thread of its own and come back at once. Here whoever asks waits for the
    answer, and other fragments have threads of their own: the two hand-overs cost more than a small policy's whole
    decision. It has no effect once JAX has used its devices.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    _write_hashes_out()


@functools.cache
def _write_hashes_out() -> None:
    """Compile each random number's hash into one operation. JAX makes it a loop on CPUs, of several operations a round:
    ten hashes took a third of an iteration that learned from a replay. The numbers are the same."""
    mlir.register_lowering(threefry2x32_p, mlir.lower_fun(_threefry, multiple_results=True), platform="cpu")


@jax.jit  # traced and lowered once for each shape, not once for each hash
def _threefry(key1: Any, key2: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011)."""
    keys = (key1, key2, key1 ^ key2 ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for distance in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = x + y
            y = ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance))) ^ x
        x, y = x + keys[(group + 1) % 3], y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def cpu_options(jaxpr: Any, alone: bool) -> dict[str, str | bool]:
    """XLA's options for a program on a CPU.

    One operation at a time if it is not `alone`, since other fragments use the other cores, or if all its operations
    are small: waking a core for a small operation takes longer than the operation.
    """
    options: dict[str, str | bool] = {}
    rows, multiplications = largest_products(jaxpr)
    if rows < MANY_ROWS:
        options["xla_cpu_experimental_ynn_fusion_type"] = ""
    if not alone or multiplications <= SMALL_PRODUCT:
        options["xla_cpu_scheduler_type"] = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
        options["xla_disable_hlo_passes"] = "cpu-parallel-task-assigner"
    return {name: value for name, value in options.items() if _is_known(name, value)}


MANY_ROWS = 512
"""XLA has two libraries for products of matrices. YNNPACK is the faster one for many rows (with minibatches of 2,048
and layers of 64, 13% less time for an iteration), Eigen for few (batches of 64 and layers of 256: 25% less)."""
SMALL_PRODUCT = 2**19
"""Multiplications up to which operations gain nothing from a second core. One at a time, an iteration with batches and
layers of 64 takes 24% less time, one with layers of 256 takes 25% more."""


def largest_products(jaxpr: Any) -> tuple[int, int]:
    """The rows of the tallest product of matrices in a program, and the multiplications of the largest."""
    rows = multiplications = 0
    for equation in jaxpr.eqns:
        found = [largest_products(inner) for inner in jaxprs_in_params(equation.params)]
        if equation.primitive.name == "dot_general":
            shape = equation.outvars[0].aval.shape
            (contracted, _), _ = equation.params["dimension_numbers"]
            length = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            found.append((math.prod(shape[:-1]), math.prod(shape) * length))
        for each_rows, each_multiplications in found:
            rows, multiplications = max(rows, each_rows), max(multiplications, each_multiplications)
    return rows, multiplications


@functools.cache
def _is_known(name: str, value: str | bool) -> bool:
    """Whether this version of XLA has such an option."""
    try:
        jax.jit(lambda: 0).lower().compile({name: value})
    except Exception:  # XLA's own, of no class that a caller could name
        return False
    return True
