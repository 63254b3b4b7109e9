"""Rules of the primitives that make one number of many: sums, extremes, products of matrices, convolutions, sorts."""

from __future__ import annotations

from collections.abc import Sequence

from motet.flow.reduction.equation import Equation, Rule
from motet.flow.reduction.share import (
    COUNTED,
    UNKNOWN,
    Operation,
    Share,
    alongside,
    function,
    mixed,
    part,
    product,
    words,
    worst,
)


def total(equation: Equation, shares: Sequence[Share]) -> Share:
    """reduce_sum."""
    (share,) = shares
    if share.zero or share.kind in ("mixed", "unknown"):
        return share
    if share.kind == "part" and share.operation != "sum":
        return mixed(f"a sum of {words(share)}")
    if equation.rows(0) not in equation.params["axes"]:
        return share.scaled(0)
    if share.kind == "position":
        return COUNTED
    return part("sum", share.degree + 1) if share.kind == "rows" else share.scaled(1)


EXTREMES: dict[str, Operation] = {"reduce_max": "max", "reduce_min": "min", "reduce_or": "any", "reduce_and": "all"}


def extreme(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,), operation = shares, EXTREMES[equation.name]
    if share.kind in ("mixed", "unknown", "same"):
        return share
    if share.kind == "part":
        return share if share.operation == operation else function(shares, f"a {operation}")
    if equation.rows(0) not in equation.params["axes"]:
        return share
    if share.kind == "position" or share.degree:
        return UNKNOWN if share.kind == "position" else mixed(f"a {operation} of values that grow with the rows")
    return part(operation)


def other_reduction(equation: Equation, shares: Sequence[Share]) -> Share:
    """reduce_prod, argmax and the like."""
    (share,) = shares
    if equation.rows(0) in equation.params["axes"] and share.kind in ("rows", "position"):
        return mixed(f"{equation.name} over the rows")
    return function(shares, equation.name)


def cumulative(equation: Equation, shares: Sequence[Share]) -> Share:
    (share,) = shares
    if share.zero:
        return share
    if equation.rows(0) == equation.params["axis"]:
        return mixed(f"{equation.name} from row to row") if share.kind == "rows" else worst(shares) or UNKNOWN
    linear = equation.name == "cumsum" and (share.kind != "part" or share.operation == "sum")
    return share.scaled(0) if linear else function(shares, equation.name)


def sort(equation: Equation, shares: Sequence[Share]) -> Share:
    place = equation.params["dimension"]
    if any(equation.rows(operand) == place for operand in range(len(shares))) and alongside(shares).kind == "rows":
        return worst(shares) or mixed("rows in another order")
    return function(shares, "a sort")


def top(equation: Equation, shares: Sequence[Share]) -> Share:
    if equation.rows(0) is not None and equation.rows_out is None and shares[0].kind == "rows":
        return mixed("the largest rows")
    return function(shares, "a sort")


def dot(equation: Equation, shares: Sequence[Share]) -> Share:
    (left, _), _ = equation.params["dimension_numbers"]
    contracts = equation.rows(0) is not None and equation.rows(0) in left
    return _bilinear(equation, shares, contracts)


def convolve(equation: Equation, shares: Sequence[Share]) -> Share:
    both = equation.rows(0) is not None and equation.rows(1) is not None
    if both and equation.rows_out is None:  # the gradient of a kernel
        return _bilinear(equation, shares, contracts=True)
    batch, _, *_ = equation.params["dimension_numbers"].lhs_spec
    plain = equation.rows(1) is None and equation.rows(0) in (None, batch)
    return _bilinear(equation, shares, contracts=False) if plain else worst(shares) or UNKNOWN


def _bilinear(equation: Equation, shares: Sequence[Share], contracts: bool) -> Share:
    degree = sum(share.degree for share in shares)
    result = product(shares, "a product", degree)
    if result.zero or result.kind in ("mixed", "unknown"):
        return result
    if not contracts:
        return result
    return part("sum", degree + 1) if result.kind == "rows" else result.scaled(1)


def window(equation: Equation, shares: Sequence[Share]) -> Share:
    """Pooling: each row by itself, unless a window spans several."""
    sizes = equation.params["window_dimensions"]
    axis = equation.rows_out
    if axis is not None and sizes[axis] != 1:
        return worst(shares) or UNKNOWN
    linear = equation.name == "reduce_window_sum" and shares[0].operation in (None, "sum")
    return shares[0].scaled(0) if linear else function(shares, equation.name)


def unpool(equation: Equation, shares: Sequence[Share]) -> Share:
    """The gradient of pooling: linear in what flows back, steered by what was pooled."""
    axis, sizes = equation.rows_out, equation.params["window_dimensions"]
    if axis is not None and sizes[axis] != 1:
        return worst(shares) or UNKNOWN
    back, pooled = shares[0], function(shares[1:], equation.name)
    return product([back, pooled], "a choice", back.degree)


def matrices(equation: Equation, shares: Sequence[Share]) -> Share:
    """Solutions and decompositions: each row by itself where it is a matrix, or a stack of them."""
    places = [equation.rows(place) for place in range(len(shares))]
    inside = [place is not None and place >= len(equation.shape(at)) - 2 for at, place in enumerate(places)]
    result = function(shares, equation.name)
    return UNKNOWN if result.kind == "rows" and any(inside) else result


MATRICES = (
    "cholesky", "cholesky_update", "custom_linear_solve", "eig", "eigh", "hessenberg", "householder_product", "lu",
    "lu_pivots_to_permutation", "qr", "schur", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(MATRICES, matrices),
    **dict.fromkeys(EXTREMES, extreme),
    **dict.fromkeys(("reduce_prod", "reduce_xor", "argmax", "argmin"), other_reduction),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), cumulative),
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), window),
    **dict.fromkeys(("select_and_scatter_add", "select_and_gather_add"), unpool),
    "reduce_sum": total,
    "sort": sort,
    "top_k": top,
    "approx_top_k": top,
    "dot_general": dot,
    "conv_general_dilated": convolve,
}
