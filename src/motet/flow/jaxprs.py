"""What programs of JAX are made of: the one place that asks `jax.extend` for it.

JAX documents these names but promises them to no later version. Where they have gone, what JAX itself returns says of
which classes it is, and the rest is a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, jaxprs_in_params

__all__ = ["ClosedJaxpr", "Jaxpr", "Literal", "jaxpr_as_fun", "jaxprs_in_params"]


def classes() -> tuple[type, type, type]:
    """Of a whole program, of one that is open, and of a number in it."""
    closed = jax.make_jaxpr(lambda x: x + 1.0)(0.0)
    (equation,) = closed.jaxpr.eqns
    return type(closed), type(closed.jaxpr), type(equation.invars[1])


def as_function(closed: Any) -> Callable[..., list[Any]]:
    """A program as a function of its arguments, leaf by leaf: as JAX's own guide to interpreters runs one."""
    from jax.core import eval_jaxpr

    return lambda *values: eval_jaxpr(closed.jaxpr, closed.consts, *values)


def programs_in(params: Mapping[str, Any]) -> Iterator[Any]:
    """The programs inside of an equation."""
    _, opened, _ = classes()
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            each = getattr(each, "jaxpr", each)
            if isinstance(each, opened):
                yield each


if not TYPE_CHECKING:
    try:
        from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, jaxprs_in_params
    except ImportError:
        ClosedJaxpr, Jaxpr, Literal = classes()
        jaxpr_as_fun, jaxprs_in_params = as_function, programs_in
