"""How JAX computes on the CPU while motet trains, and as it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from motet.engine.cpu.switch import enabled

ASYNC = "jax_cpu_enable_async_dispatch"


@contextmanager
def prepared() -> Iterator[None]:
    """Compute on the CPU in the thread that asks for it, if JAX has not made its devices yet.

    JAX would hand each computation to a thread of its own and come back at once. Here whoever asks waits for the
    answer, and other fragments have threads of their own: the two hand-overs cost more than a small policy's whole
    decision. JAX reads the option when it makes its devices, and they keep to it; the option itself is put back.
    Nothing depends on it but speed.
    """
    if not enabled() or ASYNC not in jax.config.values:
        yield
        return
    before = jax.config.values[ASYNC]
    jax.config.update(ASYNC, False)
    try:
        jax.devices()
        yield
    finally:
        jax.config.update(ASYNC, before)
