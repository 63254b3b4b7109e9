"""Rules of the primitives that take numbers one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.flow.reduction.equation import Equation, Rule
from motet.flow.reduction.share import (
    COUNTED,
    OPPOSITE,
    ZERO,
    Operation,
    Share,
    function,
    join,
    mixed,
    part,
    product,
    words,
    worst,
)

NUMBERS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "neg": np.negative,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "floor": np.floor, "abs": np.abs, "sign": np.sign,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "not": np.logical_not, "square": np.square, "pow": np.power, "add_any": np.add,
}  # fmt: skip


def fold(equation: Equation, shares: Sequence[Share]) -> Share | None:
    """A number that is computed from numbers alone."""
    compute, values = NUMBERS.get(equation.name), [share.constant for share in shares]
    if compute is None or not all(values):
        return None
    with np.errstate(all="ignore"):
        both = [compute(*(value[which] for value in values if value)).item() for which in (0, 1)]
    return equation.constant(*both)


def add(equation: Equation, shares: Sequence[Share]) -> Share:
    return join(shares, "a sum")


def subtract(equation: Equation, shares: Sequence[Share]) -> Share:
    return join([shares[0], negate(equation, shares[1:])], "a difference")


def negate(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,) = shares
    opposite = OPPOSITE.get(str(share.operation), share.operation)
    return replace(share, operation=opposite, constant=(0, 0) if share.zero else None)


def multiply(equation: Equation, shares: Sequence[Share]) -> Share:
    return product(shares, "a product", sum(share.degree for share in shares))


def divide(equation: Equation, shares: Sequence[Share]) -> Share:
    above, below = shares
    if above.zero:
        return ZERO
    floors = jnp.issubdtype(equation.whole.invars[0].aval.dtype, jnp.integer)
    if worst(shares) is None and (below.kind == "part" or (floors and above.kind == "part")):
        return mixed(f"a quotient of {words(above)} and {words(below)}")
    if floors and any(share.degree for share in shares):
        return function(shares, "a quotient")
    return product(shares, "a quotient", above.degree - below.degree)


def power(equation: Equation, shares: Sequence[Share]) -> Share:
    """x ** y for a number y that is part of the equation."""
    (share,) = shares
    if share.kind not in ("same", "rows"):
        return steady(equation, shares) if equation.name == "sqrt" else function(shares, equation.name)
    exponents = {"square": Fraction(2), "sqrt": Fraction(1, 2), "rsqrt": Fraction(-1, 2)}
    exponent = exponents.get(equation.name) or Fraction(equation.params["y"])
    return share.scaled(share.degree * (exponent - 1))


def extreme(equation: Equation, shares: Sequence[Share]) -> Share:
    """max and min, `or` and `and`. Of parts of that sort the result is one too; what grows with the rows does so."""
    sorts: dict[str, Operation] = {"max": "max", "min": "min", "or": "any", "and": "all"}
    operation = sorts[equation.name]
    parts = {share.operation for share in shares if share.kind == "part"}
    if worst(shares) is None and parts == {operation} and not any(share.kind == "rows" for share in shares):
        return function(shares, equation.name) if any(share.degree for share in shares) else part(operation)
    degrees = {share.degree for share in shares if not share.zero}
    if not parts and len(degrees) == 1 and operation in ("max", "min"):
        return function([replace(share, degree=Fraction(0)) for share in shares], equation.name).scaled(degrees.pop())
    return function(shares, equation.name)


def steady(equation: Equation, shares: Sequence[Share]) -> Share:
    """A function that never falls: that of the largest value is the largest of the function's values."""
    (share,) = shares
    return share if share.kind == "part" and share.operation != "sum" else function(shares, equation.name)


def clamp(equation: Equation, shares: Sequence[Share]) -> Share:
    low, share, high = shares
    bounds = function([low, high], equation.name)
    return steady(equation, [share]) if bounds.kind == "same" else function(shares, equation.name)


def magnitude(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,) = shares
    return share.scaled(0) if share.kind in ("same", "rows") else function(shares, equation.name)


def invert(equation: Equation, shares: Sequence[Share]) -> Share:
    """`not`."""
    return negate(equation, shares) if shares[0].operation in ("any", "all") else function(shares, equation.name)


TESTS: dict[tuple[str, str], Operation] = {
    ("max", "gt"): "any", ("max", "ge"): "any", ("min", "lt"): "any", ("min", "le"): "any",
    ("max", "lt"): "all", ("max", "le"): "all", ("min", "gt"): "all", ("min", "ge"): "all",
}  # fmt: skip
"""A largest value is above a bound if any value is."""


def compare(equation: Equation, shares: Sequence[Share]) -> Share:
    one, other = shares
    if one.kind == "position" and other.zero and equation.name == "lt":
        return ZERO  # no row has a number below 0
    operation = TESTS.get((str(one.operation), equation.name))
    if operation and other.kind == "same" and not other.degree:
        return part(operation)
    if other.zero and one.kind in ("same", "rows"):
        return function([replace(one, degree=Fraction(0))], equation.name)
    result = function(shares, "a test")
    return replace(result, why="") if result.kind == "unknown" else result


def convert(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,), old, new = shares, equation.whole.invars[0].aval.dtype, equation.params["new_dtype"]
    if jnp.issubdtype(new, jax.dtypes.extended):
        return share
    truth = np.dtype(new).kind == "b"
    if share.constant is not None:
        return equation.constant(*(np.asarray(value).astype(new).item() for value in share.constant))
    numbers: dict[str, Operation] = {"any": "max", "all": "min"}
    if share.operation in numbers and not truth:
        return part(numbers[share.operation])
    if truth and np.dtype(old).kind != "b":
        return function(shares, "a test")
    if jnp.issubdtype(new, jnp.inexact) and (share.kind == "position" or share.why):
        return mixed(share.why or COUNTED.why)
    floors = jnp.issubdtype(new, jnp.integer) and jnp.issubdtype(old, jnp.inexact)
    return steady(equation, shares) if floors else share


def select(equation: Equation, shares: Sequence[Share]) -> Share:
    which, *cases = shares
    if which.zero:
        return cases[0]
    if all(case.zero for case in cases):  # as in the first round of a derivative's loop
        return ZERO
    spoiled = worst(shares)
    if spoiled is not None:
        return spoiled
    if which.kind == "same" and not which.degree:
        return join(cases, "a choice")
    if which.kind == "part":
        return mixed(f"a choice by {words(which)}")
    degrees = {case.degree for case in cases if not case.zero}
    if len(degrees) > 1:
        return mixed("a choice of values that grow differently with the number of rows")
    level = [replace(case, degree=Fraction(0)) for case in cases]
    return function([which, *level], "a choice by row").scaled(degrees.pop() if degrees else 0)


def any_function(equation: Equation, shares: Sequence[Share]) -> Share:
    return function(shares, equation.name)


STEADY = (
    "asinh", "atan", "cbrt", "ceil", "erf", "exp", "exp2", "expm1", "floor", "log", "log1p", "logistic", "round",
    "tanh",
)  # fmt: skip
OTHERS = (
    "acos", "acosh", "asin", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "bitcast_convert_type", "clz", "complex",
    "conj", "cos", "cosh", "digamma", "eq_to", "erf_inv", "erfc", "from_edtype", "igamma", "igamma_grad_a", "igammac",
    "imag", "is_finite", "le_to", "lgamma", "lt_to", "mulhi", "nextafter", "polygamma", "population_count", "pow",
    "random_clone", "random_fold_in", "random_gamma", "random_gamma_grad", "random_seed", "random_unwrap",
    "random_wrap", "real", "reduce_precision", "regularized_incomplete_beta", "rem", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "tan", "threefry2x32", "to_edtype", "xor",
    "zeta",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(OTHERS, any_function),
    **dict.fromkeys(STEADY, steady),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), compare),
    **dict.fromkeys(("max", "min", "or", "and"), extreme),
    **dict.fromkeys(("integer_pow", "square", "sqrt", "rsqrt"), power),
    "add": add,
    "add_any": add,
    "sub": subtract,
    "neg": negate,
    "mul": multiply,
    "div": divide,
    "abs": magnitude,
    "clamp": clamp,
    "not": invert,
    "convert_element_type": convert,
    "select_n": select,
}
