"""Calls that the analysis knows by name: what `motet.batch_*` does over all pieces, and the keys of rows.

Each is a function under `jax.jit` whose name begins with `MARK`, so that it is one equation in every trace, those of
derivatives included. What is inside depends on how the batch is cut; what it means does not:

- sum, max, min: what every piece has of a result over its rows becomes that of all rows. It is linear in a sum, and its
  own transpose: what flows back is summed over the pieces as well;
- gather: the rows of all pieces, in the order of the whole batch; its transpose gives each piece what its rows get;
- own: the piece's rows of a value of the whole batch;
- keys: one for each row;
- skip: a choice row by row, in which a branch that no row of a piece wants is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from motet.flow.jaxprs import Jaxpr, jaxprs_in_params
from motet.flow.reduction.equation import Equation
from motet.flow.reduction.share import ROWS, UNKNOWN, Share, mixed, words

MARK = "motet_batch_"


def name(what: str, axis: int = 0, blocks: int = 1) -> str:
    """The name of a marked function; for those about rows with the axis and the blocks of rows that it supposes."""
    return f"{MARK}{what}_{axis}_{blocks}"


def is_marked(equation: Any) -> bool:
    return equation.primitive.name in ("jit", "pjit") and equation.params["name"].startswith(MARK)


def may_skip(equation: Any) -> bool:
    return is_marked(equation) and equation.params["name"].startswith(f"{MARK}skip")


def takes_statistics(program: Jaxpr) -> bool:
    """Whether something in it is over the whole batch."""
    return any(
        (is_marked(equation) and not equation.params["name"].startswith((f"{MARK}keys", f"{MARK}skip")))
        or any(map(takes_statistics, jaxprs_in_params(equation.params)))
        for equation in program.eqns
    )


def shares(equation: Equation, operands: Sequence[Share]) -> list[Share]:
    """What a marked function makes of its operands, one by one."""
    what, axis, blocks = equation.params["name"].removeprefix(MARK).split("_")
    count = len(equation.whole.outvars)
    if what == "keys":
        return [replace(ROWS, blocks=int(blocks))] * count
    if len(operands) != count:
        return [UNKNOWN] * count
    return [_one(what, equation, place, share, int(axis), int(blocks)) for place, share in enumerate(operands)]


def _one(what: str, equation: Equation, place: int, share: Share, axis: int, blocks: int) -> Share:
    if share.zero or share.kind in ("mixed", "unknown"):
        return share
    if what in ("sum", "max", "min"):
        return _over_pieces(what, share)
    rows = equation.rows(place)
    if rows is None and share.operation in (None, "sum"):  # its own rows of what all pieces have, or of their sum
        return replace(ROWS, blocks=blocks, degree=share.degree - (what == "gather"))
    if what == "gather" and share.kind == "rows" and (rows, share.blocks) == (axis, blocks):
        return Share("same", share.degree)
    return mixed(f"rows that batch_{what} cannot put in order: the environments must be on its `axis`")


def _over_pieces(what: str, share: Share) -> Share:
    if share.kind == "same":
        return share.scaled(-1 if what == "sum" else 0)
    if share.kind == "part" and share.operation == what:
        return Share("same", share.degree - (1 if what == "sum" else 0))
    return mixed(f"batch_{what} of {words(share)}: it must be taken over the environments' dimension too")
