"""What the pieces of a node's results are: how they combine, how their rows lie, and what cannot be cut at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax

from motet.flow.combine import Combine
from motet.flow.graph import Var
from motet.flow.reduction import SAME, Share, find, mixed

NUMBER = mixed("the number of a piece")
"""Which piece it is, a node's second argument."""


class Pieces(NamedTuple):
    """What is known of the leaves of one result."""

    combine: tuple[Combine | None, ...]
    blocks: tuple[int, ...]
    why_whole: tuple[str, ...]
    """For each leaf that pieces would get wrong: which it is, and why."""


def same(leaves: int) -> Pieces:
    """Of a result that does not depend on how the batch is cut."""
    return Pieces((None,) * leaves, (1,) * leaves, ())


def find_shares(reads: Sequence[Var], whole: Any, other: Any, ratio: Fraction) -> list[Share]:
    """What a piece has of every leaf that a node writes; `whole` and `other` are its program with two batch sizes."""
    leaves = [
        SAME if axis is None else Share("rows", blocks=blocks)
        for var in reads
        for axis, blocks in zip(var.axes, var.blocks, strict=True)
    ]
    return find(whole, other, [SAME, NUMBER, SAME, *leaves], ratio)


def blocks_of(reads: Sequence[Var], avals: Sequence[Sequence[Any]]) -> dict[int, int]:
    """Number of rows -> the blocks that they fall into, on leaves of these types."""
    found: dict[int, int] = {}
    for var, leaves in zip(reads, avals, strict=True):
        for leaf, axis, blocks in zip(leaves, var.axes, var.blocks, strict=True):
            if axis is not None:
                found.setdefault(leaf.shape[axis], blocks)
    return found


def of_call(
    name: str, tree: Any, axes: Sequence[int | None], shares: Sequence[Share], blocks_of: Mapping[int, int]
) -> Pieces:
    """The results of a called method: leaves that grow with the environments are cut along them, others combined.

    Of rows of which nothing is known, the blocks are taken to be those of as many rows that were read (`blocks_of`).
    """
    leaves = jax.tree.leaves(tree)
    blocks = tuple(
        blocks_of.get(leaf.shape[axis], 1) if axis is not None and share.kind == "unknown" else share.blocks
        for leaf, axis, share in zip(leaves, axes, shares, strict=True)
    )
    why = tuple(
        f"{name}{path} ({share.why or _off(share)})"
        for path, axis, share in zip(_paths(tree), axes, shares, strict=True)
        if not (share.exact if axis is None else _is_rows(share))
    )
    combine: tuple[Combine | None, ...] = tuple(
        None if axis is not None else share.combine for axis, share in zip(axes, shares, strict=True)
    )
    return Pieces(combine, blocks, why)


def of_state(name: str, tree: Any, axes: Sequence[int | None], old: Var, shares: Sequence[Share]) -> Pieces:
    """A state that was there before: what is common to all pieces must be proved to stay so."""
    why = tuple(
        f"{name}{path} ({_changes(share, axis, before)})"
        for path, axis, before, share in zip(_paths(tree), axes, old.axes, shares, strict=True)
        if axis != before or not (_is_same(share) if before is None else _is_rows(share))
    )
    return Pieces(old.combine, old.blocks, why)


def _is_rows(share: Share) -> bool:
    return share.kind in ("rows", "same") and not share.degree


def _is_same(share: Share) -> bool:
    return share.kind == "same" and not share.degree


def _off(share: Share) -> str:
    """What is wrong with a result that looks like one that can be cut."""
    if share.kind in ("same", "rows", "part"):
        return "a value that grows with the number of rows in a piece"
    if share.kind == "unknown":
        return "of which cannot be told how it comes from the rows"
    return "row numbers, which every piece counts for itself"


def _changes(share: Share, axis: int | None, before: int | None) -> str:
    if axis != before:
        return f"which gets one row for each of the piece's environments, on dimension {axis}"
    kinds = {"part": "a result over the piece's rows", "rows": "rows of the piece", "unknown": "values of the piece"}
    return share.why or kinds.get(share.kind, _off(share))


def _paths(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
