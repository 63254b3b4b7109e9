"""Operations that are lowered in ways of our own.

Only programs that are lowered with `lowering()` have them; JAX's own rules are left as they are.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from motet.engine.cpu import hashes, products
from motet.engine.cpu.switch import enabled


def lowering(eigen: bool) -> dict[str, Any]:
    """Arguments for `jax.stages.Traced.lower`; none where this version of JAX has no such way. `eigen`: whether it
    multiplies the program's matrices."""
    parameters = _parameters(eigen) if enabled() else None
    return {} if parameters is None else {"_private_parameters": parameters}


@functools.cache
def _parameters(eigen: bool) -> Any | None:
    hashed = _hashes()
    multiplied = _products() if eigen else None
    rules = tuple(each for each in (hashed, multiplied) if each is not None)
    if not rules:
        return None
    from jax.interpreters import mlir

    return mlir.LoweringParameters(override_lowering_rules=rules)


# An argument that is not known, or a rule that is not heeded, is found out in a trial and not in a run.


@functools.cache
def _hashes() -> Any | None:
    """Which operation, and its rule."""
    try:
        from jax.extend.random import threefry2x32_p
        from jax.interpreters import mlir

        rule = (threefry2x32_p, mlir.lower_fun(hashes.threefry, multiple_results=True))
        text = _lowered(rule, jax.random.bits, jax.random.key(0))
        return rule if "while" not in text else None
    except (ImportError, AttributeError, TypeError):
        return None


@functools.cache
def _products() -> Any | None:
    try:
        from jax._src.interpreters.mlir import _platform_specific_lowerings
        from jax.lax import dot_general_p

        rule = (dot_general_p, products.rule(_platform_specific_lowerings["cpu"][dot_general_p].rule))
        text = _lowered(rule, lambda x: (products.with_transposed(x, x), x @ x), np.ones((64, 64), np.float32))
        return rule if text.count("optimization_barrier") == 2 else None
    except (ImportError, AttributeError, TypeError, KeyError):
        return None


def _lowered(rule: tuple[Any, Any], function: Any, *arguments: Any) -> str:
    from jax.interpreters import mlir

    parameters = mlir.LoweringParameters(override_lowering_rules=(rule,))
    return jax.jit(function).trace(*arguments).lower(_private_parameters=parameters).as_text()
