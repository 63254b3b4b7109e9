"""The quick ways of CPUs are really taken with the versions that motet is tested with: what falls back to JAX's public
ways gives the same numbers, so that nobody would notice but by the clock."""

from __future__ import annotations

import os
import threading
from typing import Any

import jax
import numpy as np
import pytest

from motet.engine.cpu import callback, clone, options, rules
from motet.engine.cpu.switch import enabled

pytestmark = pytest.mark.skipif(not enabled(), reason="the quick ways are switched off")


def test_programs_call_python_directly_even_if_first_asked_while_tracing() -> None:
    callback._primitive.cache_clear()
    aval = jax.ShapeDtypeStruct((3,), np.dtype(np.float32))

    def program(x: Any) -> Any:
        return callback.host_call(lambda numbers: (numbers + 1,), (aval,), x)[0]

    text = str(jax.make_jaxpr(program)(np.zeros(3, np.float32)))
    assert "motet_host_call" in text and "io_callback" not in text
    np.testing.assert_array_equal(jax.jit(program)(np.ones(3, np.float32)), 2)


def test_threads_of_xla_stay_known_to_python() -> None:
    seen: list[bool] = []

    def answer(number: np.ndarray) -> tuple[np.ndarray]:
        seen.append(hasattr(local, "here"))
        local.here = True
        return (number + 1,)

    local, aval = threading.local(), jax.ShapeDtypeStruct((), np.dtype(np.int32))

    def program(x: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, x: callback.host_call(answer, (aval,), x)[0], x)

    assert int(jax.jit(program)(np.int32(0))) == 20
    assert sum(seen) >= 20 - (os.cpu_count() or 1)


def test_hashes_are_written_out_and_products_are_turned() -> None:
    assert rules._hashes() and rules._products()
    assert rules.lowering(eigen=True) and rules.lowering(eigen=False)


def test_programs_are_loaded_for_other_devices() -> None:
    assert clone._unpacker() is not None


def test_xla_knows_the_options() -> None:
    small = jax.make_jaxpr(lambda x: x @ x)(np.zeros((4, 4), np.float32))
    assert len(options.cpu_options(small.jaxpr, alone=False)) == 3
