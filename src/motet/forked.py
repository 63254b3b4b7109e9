"""A process that was forked after JAX had started its threads cannot compute: it would wait for those threads."""

from __future__ import annotations

import os
import sys

from motet.errors import MotetError

SETTLED = "jax_cpu_get_local_topology_timeout_minutes"
"""An option that JAX takes only before it starts. For how long hosts look for each other does not matter to anybody
who reads it while it is another for a moment."""

_started = False
"""Whether this process had used JAX when it last began to fork."""
_broken: list[int] = []
"""This process's parent, if that had used JAX when it forked this one."""


def refuse() -> None:
    """Raise in a process that JAX would hang in."""
    if _broken:
        raise MotetError(
            f"This process was forked from process {_broken[0]}, which had used JAX. JAX's threads are not here, so a "
            'run would wait for them without end. Start processes with multiprocessing.get_context("spawn"), or fork '
            "before anything uses JAX."
        )


def has_started() -> bool:
    """Whether JAX has made its devices, and with them its threads. To ask for the devices would make them."""
    jax = sys.modules.get("jax")
    before = getattr(getattr(jax, "config", None), SETTLED, None)
    if jax is None or before is None:  # not even imported to its end, or a version that has no such option
        return False
    try:
        jax.config.update(SETTLED, before + 1)
    except RuntimeError:
        return True
    jax.config.update(SETTLED, before)
    return False


def _look() -> None:
    # In the parent: in a child, whatever JAX locks may be locked for ever by a thread that is not there.
    global _started
    _started = has_started()


def _note() -> None:
    if _started:
        _broken[:] = [os.getppid()]


os.register_at_fork(before=_look, after_in_child=_note)
