"""How programs are compiled for a CPU: one operation at a time where all of them are small."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.engine.cpu.options import QUICKLY, SMALL_PRODUCT, compiled, cpu_options, largest_products
from motet.engine.cpu.switch import enabled
from motet.engine.rehearse import schedules_of
from motet.flow.trace import trace
from motet.plan.plan import Plan
from motet.plan.schedule import Call


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


@pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")
def test_what_runs_once_is_compiled_quickly() -> None:
    program = looping(64, 256)
    assert cpu_options(program, True, once=True) == QUICKLY != cpu_options(program, True)
    _, used = compiled(jax.jit(lambda x: x + 1.0).lower(jnp.zeros(2)), dict(QUICKLY))
    assert used == QUICKLY  # this version of XLA knows them all


@pytest.mark.parametrize("plan", [motet.anakin(), motet.coarse(1), motet.pearl()], ids=lambda plan: plan.name)
def test_the_first_state_runs_once_and_what_fills_a_replay_does_not(plan: Plan) -> None:
    graph = trace(motet.DQN(num_envs=4, learning_starts=256, hidden=(8,)), motet.make("CartPole-v1"), iterations=4)
    for schedule in schedules_of(graph, plan).values():
        first = [each for each in schedule.start if isinstance(each, Call) and each.once]
        assert all("init" in call.label and "unroll" not in call.label for call in first)
        assert not any(each.once for each in schedule.body if isinstance(each, Call))
    starts = [each for schedule in schedules_of(graph, plan).values() for each in schedule.start]
    assert any(isinstance(each, Call) and each.once for each in starts)
    assert any(not isinstance(each, Call) or not each.once for each in starts)
