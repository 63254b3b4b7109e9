"""Rules of gathers and scatters, and of random bits.

Rows of a table may be looked up for each row of a batch, and the gradient of that adds rows to the table: a sum over
the batch. Rows of the batch itself can only be found by their own position, as in `x[jnp.arange(n), action]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from motet.flow.reduction.equation import Equation, Rule
from motet.flow.reduction.share import (
    UNKNOWN,
    Operation,
    Share,
    alongside,
    function,
    join,
    mixed,
    part,
    words,
    worst,
)


def gather(equation: Equation, shares: Sequence[Share]) -> Share:
    table, index = shares
    spoiled = worst(shares)
    if spoiled is not None or table.zero:
        return table if spoiled is None else UNKNOWN if spoiled.kind == "unknown" else spoiled
    if index.kind == "part" or (table.kind == "part" and index.kind == "rows"):
        return mixed(f"a choice of {words(table)} by {words(index)}")
    if table.kind in ("same", "part") and index.kind == "position":
        return UNKNOWN
    if table.kind == "part":
        return table
    if table.kind == "same":  # a table that is looked up in for each row, or for all
        return alongside([index]).scaled(table.degree)
    return _own_rows_of(equation, table, index) if table.kind == "rows" else UNKNOWN


def _own_rows_of(equation: Equation, table: Share, index: Share) -> Share:
    """Something of each row of the operand."""
    numbers, axis = equation.params["dimension_numbers"], equation.rows(0)
    assert axis is not None
    whole = equation.params["slice_sizes"][axis] == equation.shape(0)[axis]
    column = _column(index, numbers.start_index_map, axis)
    own = column is not None and column.kind == "position"
    if axis in numbers.operand_batching_dims or whole or own:
        return alongside([table, *_besides(index)]).scaled(table.degree)
    return UNKNOWN if column is None or column.kind == "unknown" else mixed("some of the rows")


def _column(index: Share, dims: Sequence[int], axis: int) -> Share | None:
    """What the indices along one dimension of the operand are."""
    if axis not in dims:
        return None
    if index.columns:
        return index.columns[list(dims).index(axis)]
    return index if len(dims) == 1 else UNKNOWN


def _besides(index: Share) -> list[Share]:
    """The indices without the positions among them."""
    return [share for share in index.columns or (index,) if share.kind != "position"]


def scatter_add(equation: Equation, shares: Sequence[Share]) -> Share:
    return _scatter(equation, shares, "sum")


def scatter_max(equation: Equation, shares: Sequence[Share]) -> Share:
    return _scatter(equation, shares, "max")


def scatter_min(equation: Equation, shares: Sequence[Share]) -> Share:
    return _scatter(equation, shares, "min")


def scatter(equation: Equation, shares: Sequence[Share]) -> Share:
    """One value written over another: of several rows that write to one place, nobody says which remains."""
    return _scatter(equation, shares, None)


def _scatter(equation: Equation, shares: Sequence[Share], operation: Operation | None) -> Share:
    table, index, updates = shares
    spoiled = worst(shares)
    if spoiled is not None:
        return UNKNOWN if spoiled.kind == "unknown" else spoiled
    if index.kind == "part":
        return mixed(f"an update by {words(index)}")
    if updates.zero and operation == "sum":
        return table
    into, rows = equation.rows(0), equation.rows(2)
    if into is None and rows is not None:
        return _into_table(table, index, updates, operation)
    if into is not None and not _own_rows(equation, index, into):
        return UNKNOWN
    values = updates if updates.kind == "part" else alongside([updates, *_besides(index)]).scaled(updates.degree)
    if values.kind == "rows" and into is None:
        return UNKNOWN
    return join([table if table.zero else replace(table, constant=None), values], "an update")


def _into_table(table: Share, index: Share, updates: Share, operation: Operation | None) -> Share:
    """Rows of a batch that are added to the places of a table."""
    if operation is None or updates.kind not in ("rows", "same") or index.kind not in ("rows", "same"):
        return UNKNOWN
    if alongside([updates, index]).kind == "mixed":
        return alongside([updates, index])
    if operation == "sum":
        return join([table, part("sum", updates.degree + 1)], "an update")
    if updates.degree:
        return mixed("an update by values that grow with the rows")
    return join([table, part(operation)], "an update")


def _own_rows(equation: Equation, index: Share, axis: int) -> bool:
    """Whether each row of the updates goes to the same row of the operand."""
    numbers: Any = equation.params["dimension_numbers"]
    if axis in numbers.operand_batching_dims:
        return True
    column = _column(index, numbers.scatter_dims_to_operand_dims, axis)
    if column is not None and column.kind == "position":
        return True
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = [dim for dim in range(len(equation.shape(0))) if dim not in dropped]
    if axis not in window:
        return False
    update_axis = numbers.update_window_dims[window.index(axis)]
    return equation.shape(2)[update_axis] == equation.shape(0)[axis] and index.kind == "same"


def bits(equation: Equation, shares: Sequence[Share]) -> Share:
    """Random bits: rows of their own for keys of their own, but no piece draws what the whole batch does."""
    if equation.rows_out is not None and equation.rows(0) is None:
        return worst(shares) or UNKNOWN
    return function(shares, equation.name)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("scatter-add", "scatter-sub"), scatter_add),
    "scatter-max": scatter_max,
    "scatter-min": scatter_min,
    **dict.fromkeys(("random_bits", "random_split"), bits),
    "scatter": scatter,
    "gather": gather,
}
