"""From what a piece knows of a function's arguments to what it knows of the results, equation by equation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from motet.flow.jaxprs import ClosedJaxpr, Jaxpr, Literal
from motet.flow.reduction import contractions, indexing, marks, pointwise, shapes
from motet.flow.reduction.equation import Equation, Rule, differing, row_axis
from motet.flow.reduction.share import (
    COUNTED,
    POSITION,
    SAME,
    UNKNOWN,
    ZERO,
    Share,
    alongside,
    join,
    mixed,
    worst,
)

RULES: dict[str, Rule] = {**pointwise.RULES, **shapes.RULES, **contractions.RULES, **indexing.RULES}
CALLS = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat": "jaxpr",
    "remat2": "jaxpr", "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "call": "call_jaxpr", "composite": "jaxpr",
}  # fmt: skip
"""Primitives that only call a program, and the parameter in which they keep it."""
ROUNDS = 6
"""After so many rounds of a loop whatever is still changing is not known."""


class Differ(Exception):
    """The two traces are not of the same form."""


def find(whole: ClosedJaxpr, other: ClosedJaxpr, arguments: Sequence[Share], ratio: Fraction) -> list[Share]:
    """The shares of a program's results. `ratio` is how many rows `whole` has for each of `other`'s."""
    try:
        return Walk(ratio).closed(whole, other, tuple(arguments))
    except Differ:
        return [UNKNOWN] * len(whole.jaxpr.outvars)


class Walk:
    """One analysis."""

    def __init__(self, ratio: Fraction):
        self.ratio = ratio
        self.known: dict[Any, list[Share]] = {}
        self.skipping: set[int] = set()
        """The choices of `where_any`, which give every row the same whether or not other rows are there."""

    def closed(self, whole: ClosedJaxpr, other: ClosedJaxpr, arguments: tuple[Share, ...]) -> list[Share]:
        name = (id(whole), id(other), arguments)
        if name not in self.known:
            if len(whole.consts) != len(other.consts):
                raise Differ
            constants = [self.array(a, b) for a, b in zip(whole.consts, other.consts, strict=True)]
            self.known[name] = self.open(whole.jaxpr, other.jaxpr, constants, arguments)
        return self.known[name]

    def open(self, whole: Jaxpr, other: Jaxpr, constants: Sequence[Share], arguments: Sequence[Share]) -> list[Share]:
        if len(whole.eqns) != len(other.eqns) or len(whole.invars) != len(other.invars):
            raise Differ
        shares: dict[Any, Share] = dict(zip(whole.constvars, constants, strict=True))
        shares.update(zip(whole.invars, arguments, strict=True))

        def read(one: Any, two: Any) -> Share:
            if isinstance(one, Literal) != isinstance(two, Literal):
                raise Differ
            return self.array(one.val, two.val) if isinstance(one, Literal) else shares[one]

        for one, two in zip(whole.eqns, other.eqns, strict=True):
            self.check(one, two)
            operands = [read(*pair) for pair in zip(one.invars, two.invars, strict=True)]
            shares.update(zip(one.outvars, self.equation(one, two, operands), strict=True))
        return [read(*pair) for pair in zip(whole.outvars, other.outvars, strict=True)]

    def check(self, one: Any, two: Any) -> None:
        """Whether two equations are the same one."""
        alike = one.primitive is two.primitive or one.primitive.name == two.primitive.name
        ends = [(len(e.invars), len(e.outvars)) for e in (one, two)]
        if not alike or ends[0] != ends[1]:
            raise Differ
        for a, b in zip((*one.invars, *one.outvars), (*two.invars, *two.outvars), strict=True):
            if len(getattr(a.aval, "shape", ())) != len(getattr(b.aval, "shape", ())):
                raise Differ

    def equation(self, one: Any, two: Any, operands: list[Share]) -> list[Share]:
        """The shares of an equation's results."""
        name, count = one.primitive.name, len(one.outvars)
        if marks.may_skip(one):
            self.skipping |= {id(inner) for inner in one.params["jaxpr"].jaxpr.eqns}
            return self.call(one, two, "jaxpr", operands)
        if marks.is_marked(one):
            return marks.shares(Equation(one, two, self.constant), operands)
        special = {"scan": self.scan, "while": self.while_, "cond": self.cond}.get(name)
        if special is not None:
            return special(one, two, operands)
        if name in CALLS:
            return self.call(one, two, CALLS[name], operands)
        equation = Equation(one, two, self.constant)
        result = (pointwise.fold(equation, operands) if operands else None) or self.apply(equation, operands)
        return result if isinstance(result, list) else [result] * count

    def apply(self, equation: Equation, operands: list[Share]) -> Share | list[Share]:
        rule = RULES.get(equation.name)
        if equation.squares and any(share.kind != "same" for share in operands):
            return worst(operands) or mixed("a comparison of rows with each other")
        if rule is None:
            plain = all(share.kind == "same" and not share.degree for share in operands)
            ends = zip((*equation.whole.invars, *equation.whole.outvars),
                       (*equation.other.invars, *equation.other.outvars), strict=True)  # fmt: skip
            rowless = not any(differing(a.aval.shape, b.aval.shape) for a, b in ends if hasattr(a.aval, "shape"))
            return SAME if plain and rowless else worst(operands) or UNKNOWN
        return rule(equation, operands)

    # Programs inside of programs.

    def call(self, one: Any, two: Any, key: str, operands: list[Share]) -> list[Share]:
        whole, other = one.params[key], two.params[key]
        if isinstance(whole, ClosedJaxpr):
            return self.closed(whole, other, tuple(operands))
        return self.open(whole, other, (), operands)

    def scan(self, one: Any, two: Any, operands: list[Share]) -> list[Share]:
        consts, carried = one.params["num_consts"], one.params["num_carry"]
        fixed, first, stepped = operands[:consts], operands[consts : consts + carried], operands[consts + carried :]
        body = one.params["jaxpr"], two.params["jaxpr"]
        if one.params["length"] != two.params["length"]:
            return self.over_rows(one, two, operands)

        def round_(carry: list[Share]) -> list[Share]:
            return self.closed(*body, (*fixed, *carry, *stepped))

        carry = self.settle(first, lambda carry: round_(carry)[:carried])
        return [*carry, *round_(carry)[carried:]]

    def over_rows(self, one: Any, two: Any, operands: list[Share]) -> list[Share]:
        """A loop over the rows themselves: each by itself, or who knows what."""
        fixed, stepped = operands[: one.params["num_consts"]], operands[one.params["num_consts"] :]
        count = len(one.outvars)
        if one.params["num_carry"]:
            return [worst(operands) or mixed("a loop that carries something from row to row")] * count
        if any(share.kind in ("rows", "part") for share in fixed):
            return [worst(operands) or mixed("a loop over the rows that reads what is over them in each round")] * count
        level = not any(share.degree or share.kind not in ("same", "rows") for share in operands)
        rows = worst(operands) or alongside(stepped)
        if not level or rows.kind != "rows":
            return [worst([rows]) or UNKNOWN] * count
        inside = self.closed(one.params["jaxpr"], two.params["jaxpr"], (*fixed, *(SAME for _ in stepped)))
        alone = all(share.kind == "same" and not share.degree for share in inside)
        return [rows if alone else UNKNOWN] * len(one.outvars)

    def while_(self, one: Any, two: Any, operands: list[Share]) -> list[Share]:
        tests, fixed = one.params["cond_nconsts"], one.params["body_nconsts"]
        cond_consts, body_consts = operands[:tests], operands[tests : tests + fixed]
        body, cond = one.params["body_jaxpr"], one.params["cond_jaxpr"]
        other_body, other_cond = two.params["body_jaxpr"], two.params["cond_jaxpr"]

        def round_(carry: list[Share]) -> list[Share]:
            return self.closed(body, other_body, (*body_consts, *carry))

        carry = self.settle(operands[tests + fixed :], round_)
        (goes_on,) = self.closed(cond, other_cond, (*cond_consts, *carry))
        return self.by(goes_on, carry)

    def cond(self, one: Any, two: Any, operands: list[Share]) -> list[Share]:
        which, *rest = operands
        if id(one) in self.skipping and which.operation in ("any", "max"):  # a test, or the same as a number
            which = SAME  # where no row wants what is skipped
        results = [
            self.closed(a, b, tuple(rest)) for a, b in zip(one.params["branches"], two.params["branches"], strict=True)
        ]
        return self.by(which, [join(shares, "a choice") for shares in zip(*results, strict=True)])

    def by(self, which: Share, results: list[Share]) -> list[Share]:
        """Results that hang on `which`."""
        if which.kind == "same" and not which.degree:
            return results
        otherwise = worst([which]) or mixed("a branch by a result over the rows; motet.where_any chooses row by row")
        return [worst([share]) or otherwise for share in results]

    def settle(self, first: list[Share], round_: Any) -> list[Share]:
        """What a loop carries, whichever round it is."""
        carry = [share if share.zero else share.scaled(0) for share in first]
        for _ in range(ROUNDS):
            after = [join(pair, "a loop") for pair in zip(carry, round_(carry), strict=True)]
            if after == carry:
                return carry
            carry = after
        return [share if share == now else UNKNOWN for share, now in zip(carry, round_(carry), strict=True)]

    # Numbers that are part of the program.

    def constant(self, one: Any, two: Any, tolerance: float = 1e-5) -> Share:
        """A number with either number of rows: it may grow as they do."""
        if one == two or (one != one and two != two):
            return Share("same", constant=(one, two))
        for power in map(Fraction, (1, -1, 2, -2, "1/2", "-1/2")) if one and two else ():
            if abs(one / two / float(self.ratio) ** float(power) - 1) < tolerance:
                return Share("same", power, constant=(one, two))
        number = isinstance(one, float) or isinstance(two, float)
        return mixed("a number that depends on the number of rows") if number else UNKNOWN

    def array(self, one: Any, two: Any) -> Share:
        """A constant of the program."""
        if one is two and np.ndim(one):
            return SAME
        try:
            one, two = np.asarray(one), np.asarray(two)
        except TypeError:  # random keys
            return UNKNOWN
        if one.ndim != two.ndim or len(differing(one.shape, two.shape)) > 1:
            return UNKNOWN
        axis = row_axis(one.shape, two.shape)
        if axis is not None and all(np.array_equal(each, np.arange(each.size)) for each in (one, two)):
            return POSITION if np.issubdtype(one.dtype, np.integer) else mixed(COUNTED.why)
        # Along the rows it must be the same number everywhere, of which one is enough.
        ends = [each if axis is None else each.take([0], axis) for each in (one, two)]
        if not all(np.array_equal(a, np.broadcast_to(b, a.shape)) for a, b in zip((one, two), ends, strict=True)):
            return UNKNOWN
        if ends[0].size == 1:
            return self.constant(*(each.item() for each in ends), tolerance=1e-2 if one.dtype.itemsize < 4 else 1e-5)
        if not np.array_equal(*ends):
            return UNKNOWN
        return SAME if ends[0].any() else ZERO
