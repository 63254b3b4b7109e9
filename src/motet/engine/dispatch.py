"""How JAX starts a computation on the CPU."""

from __future__ import annotations

import jax


def inline() -> None:
    """Compute on the CPU in the thread that asks for it.

    JAX would hand each computation to a thread of its own and come back at once. Here whoever asks waits for the
    answer, and other fragments have threads of their own: the two hand-overs cost more than a small policy's whole
    decision. It has no effect once JAX has used its devices.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)
