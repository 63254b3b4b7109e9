"""How programs are compiled for a CPU: one operation at a time where all of them are small."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from motet.engine.cpu.options import SMALL_PRODUCT, compiled, cpu_options, largest_products
from motet.engine.cpu.switch import enabled


def looping(rows: int, width: int) -> Any:
    """A product of [rows, width] and [width, width] in a loop."""
    weights = jnp.zeros((width, width))
    loop = jax.make_jaxpr(lambda x: jax.lax.scan(lambda x, _: (x @ weights, None), x, length=3))
    return loop(jnp.zeros((rows, width))).jaxpr


def test_products_are_found_in_loops() -> None:
    assert largest_products(looping(64, 32)) == (64, 64 * 32 * 32)
    assert largest_products(jax.make_jaxpr(jnp.sin)(1.0).jaxpr) == (0, 0)


@pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")
@pytest.mark.parametrize(("width", "alone", "serial"), [(64, True, True), (256, True, False), (256, False, True)])
def test_what_is_small_or_not_alone_runs_one_operation_at_a_time(width: int, alone: bool, serial: bool) -> None:
    program = looping(64, width)
    assert (largest_products(program)[1] <= SMALL_PRODUCT) == (width == 64)
    options = cpu_options(program, alone)
    assert ("xla_cpu_scheduler_type" in options, "xla_disable_hlo_passes" in options) == (serial, serial)


def test_options_that_this_version_of_xla_does_not_have_are_left_out() -> None:
    lowered = jax.jit(lambda x: x + 1.0).lower(jnp.zeros(2))
    known: dict[str, str | bool] = {"xla_cpu_enable_fast_math": False}
    program, used = compiled(lowered, {**known, "xla_cpu_there_is_no_such_option": True})
    assert used == known and program(jnp.ones(2)).tolist() == [2.0, 2.0]
