"""A process that was forked after JAX had started its threads cannot compute: it would wait for those threads."""

from __future__ import annotations

import os
import sys

from motet.errors import MotetError

_broken: list[int] = []
"""This process's parent, if it had used JAX when it forked this one."""


def refuse() -> None:
    """Raise in a process that JAX would hang in."""
    if _broken:
        raise MotetError(
            f"This process was forked from process {_broken[0]}, which had used JAX. JAX's threads are not here, so a "
            'run would wait for them without end. Start processes with multiprocessing.get_context("spawn"), or fork '
            "before anything uses JAX."
        )


def _note() -> None:
    # There is no public way to ask without starting JAX. Where this name is gone, nothing is noticed.
    if getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None):
        _broken[:] = [os.getppid()]


os.register_at_fork(after_in_child=_note)
