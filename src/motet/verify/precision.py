"""In which precision an algorithm computes: in double where it can, and with tolerances to match where it cannot.

Libraries make parameters in single precision unless they are told otherwise, whatever JAX is set to. What rounding does
to them looks like a rule that is broken. So the first learner state is widened, and what is computed from it follows.
Of methods that ask for single precision themselves, no more is expected than that has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.algorithm import Algorithm
from motet.flow.graph import WHOLE, Graph, Node
from motet.flow.jaxprs import Jaxpr, jaxprs_in_params
from motet.flow.trace import trace

LOOSER = ((1e-10, 1.0), (1e-5, 1e5), (np.inf, 1e8))
"""Up to which distance of neighbouring numbers around 1 tolerances are how many times those of double precision."""
MOVES = ("broadcast_in_dim", "concatenate", "convert_element_type", "copy", "gather", "dynamic_slice", "reshape",
         "select_n", "slice", "squeeze", "stop_gradient", "transpose")  # fmt: skip
"""Operations that round nothing."""


def traced(algorithm: Algorithm, env: Any, iterations: int, cuts: Any) -> Graph:
    """The graph in double precision; as it stands if the algorithm's code insists on another."""
    try:
        return trace(_widened(algorithm), env, iterations=iterations, cuts=cuts)
    except Exception:  # whatever its code or JAX says: it is asked again with the types that it chose
        return trace(algorithm, env, iterations=iterations, cuts=cuts)


def _widened(algorithm: Algorithm) -> Algorithm:
    kind = type(algorithm)

    def init(self: Any, key: jax.Array) -> Any:
        return jax.tree.map(_wide, kind.init(self, key))

    wide = copy.copy(algorithm)
    object.__setattr__(wide, "__class__", type(kind.__name__, (kind,), {"init": init}))
    return wide


def _wide(leaf: Any) -> Any:
    return leaf.astype(jnp.float64) if jnp.result_type(leaf) == jnp.float32 else leaf


def looser(node: Node) -> float:
    """How many times the tolerance of double precision what this node computes needs."""
    jaxpr = node.code.get(WHOLE)
    steps = [np.finfo(np.float64).eps, *(_steps(jaxpr.jaxpr) if jaxpr is not None else ())]
    return next(times for bound, times in LOOSER if max(steps) < bound)


def _steps(jaxpr: Jaxpr) -> Iterator[float]:
    """How far apart neighbouring numbers around 1 are, of every type that something is rounded to."""
    for equation in jaxpr.eqns:
        for inner in jaxprs_in_params(equation.params):
            yield from _steps(inner)
        if equation.primitive.name not in MOVES:
            dtypes = [getattr(var.aval, "dtype", None) for var in equation.outvars]
            yield from (float(jnp.finfo(dtype).eps) for dtype in dtypes if dtype and jnp.issubdtype(dtype, jnp.inexact))
