"""How XLA compiles for CPUs, where training loops are long chains of small operations.

The bounds were measured with two sizes of network on two cores; they choose between ways that give the same numbers but
for rounding.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax

from motet.engine.cpu.switch import enabled
from motet.flow.jaxprs import jaxprs_in_params


def cpu_options(jaxpr: Any, alone: bool, once: bool = False) -> dict[str, str | bool]:
    """XLA's options for a program on a CPU.

    One operation at a time if it is not `alone`, since other fragments use the other cores, or if all its operations
    are small: waking a core for a small operation takes longer than the operation. What runs `once` is compiled in a
    third of the time, and need not be fast.
    """
    options: dict[str, str | bool] = {}
    if not enabled():
        return options
    if once:
        return dict(QUICKLY)
    rows, multiplications = largest_products(jaxpr)
    if rows < MANY_ROWS:
        options[YNNPACK] = ""
    if not alone or multiplications <= SMALL_PRODUCT:
        options["xla_cpu_scheduler_type"] = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
        options |= one_core()
    return options


def one_core() -> dict[str, str | bool]:
    """What keeps a program's operations on one core, each in one piece."""
    return {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"} if enabled() else {}


def by_eigen(options: dict[str, str | bool]) -> bool:
    """Whether Eigen multiplies matrices, not YNNPACK."""
    return options.get(YNNPACK) == ""


def compiled(lowered: Any, options: dict[str, str | bool]) -> tuple[Any, dict[str, str | bool]]:
    """The program, and with which of the options: those that this version of XLA has."""
    try:
        return lowered.compile(options), options
    except Exception:  # XLA's own, of no class that a caller could name
        known = {name: value for name, value in options.items() if _is_known(name, value)}
        if known == options:
            raise
        return lowered.compile(known), known


YNNPACK = "xla_cpu_experimental_ynn_fusion_type"
"""What YNNPACK is to compute; nothing, and Eigen does."""
QUICKLY: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_opt_preset": "CPU_OPT_PRESET_FAST_COMPILE",
    "xla_cpu_use_fusion_emitters": False,
}
"""To compile the first state of five networks takes 1.0 s instead of 2.8."""
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
