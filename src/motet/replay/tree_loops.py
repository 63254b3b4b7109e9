"""The loops of the sum tree on the host, compiled by numba: import this only where numba is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

loop = njit(cache=True, nogil=True)


@loop
def sum_children(tree: Any, column: int, first: int, count: int) -> Any:
    total = tree[column, first]
    for position in range(first + 1, first + count):
        total += tree[column, position]
    return total


@loop
def update(tree: Any, counts: Any, offsets: Any, shift: int, column: Any, leaf: Any, value: Any) -> None:
    columns, depth, fan_out = tree.shape[0], counts.size - 1, 1 << shift
    for entry in range(leaf.size):
        if leaf[entry] >= 0:
            tree[column[entry], offsets[depth] + leaf[entry]] = value[entry]
    for level in range(depth - 1, -1, -1):
        above, below = offsets[level], offsets[level + 1]
        if columns * counts[level] <= leaf.size:  # fewer nodes than entries: all of them anew
            for each in range(columns):
                for node in range(counts[level]):
                    tree[each, above + node] = sum_children(tree, each, below + (node << shift), fan_out)
            continue
        for entry in range(leaf.size):
            if leaf[entry] >= 0:
                node = leaf[entry] >> (shift * (depth - level))
                total = sum_children(tree, column[entry], below + (node << shift), fan_out)
                tree[column[entry], above + node] = total


@loop
def join(top: Any, counts: Any, offsets: Any, shift: int, tree: Any) -> None:
    """The tree above the roots of all columns."""
    depth = counts.size - 1
    for column in range(tree.shape[0]):
        top[0, offsets[depth] + column] = tree[column, 0]
    for level in range(depth - 1, -1, -1):
        for node in range(counts[level]):
            below = offsets[level + 1] + (node << shift)
            top[0, offsets[level] + node] = sum_children(top, 0, below, 1 << shift)


@loop
def descend(tree: Any, offsets: Any, shift: int, column: int, target: Any) -> Any:
    node = 0
    for level in range(offsets.size - 2):
        first = offsets[level + 1] + (node << shift)
        before, last, last_before = np.float32(0), 0, np.float32(0)
        for child in range(1 << shift):
            each = tree[column, first + child]
            if each > 0:
                last, last_before = child, before
            before += each
            if target < before:
                break
        target -= last_before
        node = (node << shift) + last
    return node, target


@loop
def find(
    top: Any,
    top_offsets: Any,
    tree: Any,
    offsets: Any,
    shift: int,
    share: Any,
    total: Any,
    column: Any,
    leaf: Any,
    value: Any,
) -> None:
    for entry in range(share.size):
        target = min(share[entry] * total, total)
        column[entry], target = descend(top, top_offsets, shift, 0, target)
        leaf[entry], target = descend(tree, offsets, shift, column[entry], target)
        value[entry] = tree[column[entry], offsets[-2] + leaf[entry]]
